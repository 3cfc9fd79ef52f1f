#include <cmath>

#include "ops/cpu/cpu_ops.h"

namespace motley {
namespace {

// Per row: factors of q and k, and the gates. Indexed by the row of the batch.
struct ChannelInputs {
  float* q_scale = nullptr;  // [rows, heads]
  float* k_scale = nullptr;  // [rows, heads]
  float* beta = nullptr;     // [rows, heads]
  float* factor = nullptr;   // [rows, key_dim]: e^g
};

void prepare_row(const CpuKernels& kernels, const ChannelDeltaArgs& args, int64_t row,
                 const ChannelInputs& inputs) {
  const ChannelDeltaShape& shape = args.shape;
  const int64_t dim = shape.key_head_dim;
  const float* q = args.qkv.row<float>(row);
  const float* k = q + shape.key_dim();
  const float* a = args.decay.row<float>(row);
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const float lower_bound = args.gate == DecayGate::kBounded ? args.lower_bound : 0.0f;
  for (int64_t h = 0; h < shape.heads; ++h) {
    const int64_t cell = row * shape.heads + h;
    const int64_t start = h * dim;
    inputs.q_scale[cell] = kernels.l2_scale(q + start, dim, query_scale);
    inputs.k_scale[cell] = kernels.l2_scale(k + start, dim, 1.0f);
    kernels.channel_decay(a + start, args.dt_bias.as<float>() + start, args.a_log.as<float>()[h],
                          lower_bound, dim, inputs.factor + row * shape.key_dim() + start);
  }
  kernels.sigmoid(args.beta.row<float>(row), shape.heads, inputs.beta + row * shape.heads);
}

ChannelInputs prepare(const CpuKernels& kernels, Stream& stream, const ChannelDeltaArgs& args) {
  const ChannelDeltaShape& shape = args.shape;
  MOTLEY_CHECK(args.qkv.cols() == shape.conv_dim() && args.out.cols() == shape.value_dim() &&
                   args.beta.cols() == shape.heads && args.decay.cols() == shape.key_dim(),
               "views must match the shape of the layer");
  MOTLEY_CHECK(args.gate == DecayGate::kSoftplus || args.lower_bound < 0.0f,
               "the bound of a decay is negative");
  const int64_t rows = args.qkv.rows();
  ChannelInputs inputs;
  inputs.q_scale = stream.scratch().allocate<float>(rows * shape.heads);
  inputs.k_scale = stream.scratch().allocate<float>(rows * shape.heads);
  inputs.beta = stream.scratch().allocate<float>(rows * shape.heads);
  inputs.factor = stream.scratch().allocate<float>(rows * shape.key_dim());
  for (const ChannelDeltaSegment& segment : args.segments) {
    const int64_t first = segment.rows.first_row;
    stream.threads().parallel_for(segment.rows.rows, row_grain(16 * shape.key_dim()),
                                  [&](int, int64_t begin, int64_t end) {
                                    for (int64_t t = begin; t < end; ++t) {
                                      prepare_row(kernels, args, first + t, inputs);
                                    }
                                  });
  }
  return inputs;
}

ChannelRecurrentTask recurrent_task(const ChannelDeltaArgs& args,
                                    const ChannelDeltaSegment& segment, const ChannelInputs& inputs,
                                    int64_t head, int64_t first_column) {
  const ChannelDeltaShape& shape = args.shape;
  const int64_t row = segment.rows.first_row;
  const int64_t start = head * shape.key_head_dim;
  ChannelRecurrentTask task;
  task.q = args.qkv.row<float>(row) + start;
  task.k = task.q + shape.key_dim();
  task.v =
      args.qkv.row<float>(row) + 2 * shape.key_dim() + head * shape.value_head_dim + first_column;
  task.qkv_stride = args.qkv.row_stride;
  task.q_scale = inputs.q_scale + row * shape.heads + head;
  task.k_scale = inputs.k_scale + row * shape.heads + head;
  task.scale_stride = shape.heads;
  task.beta = inputs.beta + row * shape.heads + head;
  task.beta_stride = shape.heads;
  task.factor = inputs.factor + row * shape.key_dim() + start;
  task.factor_stride = shape.key_dim();
  task.state = segment.state.row<float>(head) + first_column;
  task.state_stride = shape.value_head_dim;
  task.out = args.out.row<float>(row) + head * shape.value_head_dim + first_column;
  task.out_stride = args.out.row_stride;
  if (!segment.ring.is_empty()) {
    task.updates = segment.ring.updates.row<float>(0) + head * shape.value_head_dim + first_column;
    task.updates_stride = segment.ring.updates.row_stride;
  }
  task.rows = segment.rows.rows;
  task.key_dim = shape.key_head_dim;
  return task;
}

// Keys and factors of tentative rows, as the recurrent kernel uses them.
void fill_ring(const ChannelDeltaArgs& args, const ChannelDeltaSegment& segment,
               const ChannelInputs& inputs) {
  const ChannelDeltaShape& shape = args.shape;
  MOTLEY_CHECK(segment.ring.keys.rows() >= segment.rows.rows, "the ring holds every row");
  for (int64_t t = 0; t < segment.rows.rows; ++t) {
    const int64_t row = segment.rows.first_row + t;
    const float* k = args.qkv.row<float>(row) + shape.key_dim();
    float* keys = segment.ring.keys.row<float>(t);
    for (int64_t i = 0; i < shape.key_dim(); ++i) {
      keys[i] = k[i] * inputs.k_scale[row * shape.heads + i / shape.key_head_dim];
    }
    std::copy_n(inputs.factor + row * shape.key_dim(), shape.key_dim(),
                segment.ring.factors.row<float>(t));
  }
}

// Everything of a block task but the rows.
ChannelBlockTask block_task(const ChannelDeltaShape& shape, const ChannelDeltaSegment& segment,
                            int64_t head) {
  const ChannelDeltaCarry& carry = segment.carry;
  ChannelBlockTask task;
  task.state = segment.state.row<float>(head);
  task.carry_keys = carry.keys.as<float>() + head * shape.key_head_dim;
  task.carry_keys_stride = carry.keys.row_stride;
  task.carry_updates = carry.updates.as<float>() + head * shape.value_head_dim;
  task.carry_updates_stride = carry.updates.row_stride;
  task.carry_decay = carry.decay.as<float>() + head * shape.key_head_dim;
  task.key_dim = shape.key_head_dim;
  task.value_dim = shape.value_head_dim;
  return task;
}

// Takes a segment's rows through their blocks for one head.
void run_blocks(const CpuKernels& kernels, const ChannelDeltaArgs& args,
                const ChannelDeltaSegment& segment, const ChannelInputs& inputs, int64_t head,
                float* scratch) {
  ChannelBlockTask task = block_task(args.shape, segment, head);
  task.scratch = scratch;
  task.held = *segment.carry.rows;
  for (int64_t t = 0; t < segment.rows.rows; t += task.rows) {
    const int64_t to_boundary = kDeltaBlock - (segment.rows.first_position.value + t) % kDeltaBlock;
    task.rows = std::min<int64_t>(to_boundary, segment.rows.rows - t);
    task.ends_block = task.rows == to_boundary;
    ChannelDeltaSegment from = segment;
    from.rows.first_row += static_cast<int32_t>(t);
    const ChannelRecurrentTask rows = recurrent_task(args, from, inputs, head, 0);
    task.q = rows.q;
    task.k = rows.k;
    task.v = rows.v;
    task.qkv_stride = rows.qkv_stride;
    task.q_scale = rows.q_scale;
    task.k_scale = rows.k_scale;
    task.scale_stride = rows.scale_stride;
    task.beta = rows.beta;
    task.beta_stride = rows.beta_stride;
    task.factor = rows.factor;
    task.factor_stride = rows.factor_stride;
    task.out = rows.out;
    task.out_stride = rows.out_stride;
    kernels.channel_block(task);
    task.held = task.ends_block ? 0 : task.held + task.rows;
  }
}

// Rows in the carry after the segment.
int64_t held_after(const ChannelDeltaSegment& segment) {
  const int64_t end = segment.rows.first_position.value + segment.rows.rows;
  const bool crosses_boundary = end % kDeltaBlock < segment.rows.rows;
  return crosses_boundary ? end % kDeltaBlock : *segment.carry.rows + segment.rows.rows;
}

}  // namespace

void cpu_channel_recurrent(const CpuKernels& kernels, Stream& stream,
                           const ChannelDeltaArgs& args) {
  const Arena::Scope scope(stream.scratch());
  const ChannelInputs inputs = prepare(kernels, stream, args);
  for (const ChannelDeltaSegment& segment : args.segments) {
    if (!segment.ring.is_empty()) fill_ring(args, segment, inputs);
  }
  const int64_t scratch_floats = kernels.channel_recurrent_scratch(args.shape.key_head_dim);
  auto* scratch = stream.scratch().allocate<float>(stream.threads().size() * scratch_floats);

  const int64_t dim = args.shape.value_head_dim;
  const int64_t strips = (dim + kernels.delta_columns - 1) / kernels.delta_columns;
  const int64_t per_segment = strips * args.shape.heads;
  const int64_t tasks = static_cast<int64_t>(args.segments.size()) * per_segment;
  stream.threads().parallel_ranges(tasks, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const ChannelDeltaSegment& segment = args.segments[static_cast<size_t>(i / per_segment)];
      if (segment.rows.rows == 0) continue;
      const int64_t strip = i % per_segment;
      const int64_t first_column = strip % strips * kernels.delta_columns;
      ChannelRecurrentTask task =
          recurrent_task(args, segment, inputs, strip / strips, first_column);
      task.columns = std::min(kernels.delta_columns, dim - first_column);
      task.scratch = scratch + worker * scratch_floats;
      kernels.channel_recurrent(task);
    }
  });
}

void cpu_channel_commit(const CpuKernels& kernels, Stream& stream, const ChannelDeltaShape& shape,
                        const ChannelDeltaSegment& segment) {
  if (segment.rows.rows == 0) return;
  const DeltaRing& ring = segment.ring;
  const int64_t dim = shape.value_head_dim;
  const int64_t strips = (dim + kernels.delta_columns - 1) / kernels.delta_columns;
  stream.threads().parallel_ranges(strips * shape.heads, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / strips;
      const int64_t first_column = i % strips * kernels.delta_columns;
      kernels.delta_replay({.keys = ring.keys.row<float>(0) + head * shape.key_head_dim,
                            .keys_stride = ring.keys.row_stride,
                            .updates = ring.updates.row<float>(0) + head * dim + first_column,
                            .updates_stride = ring.updates.row_stride,
                            .factors = ring.factors.row<float>(0) + head * shape.key_head_dim,
                            .factors_stride = ring.factors.row_stride,
                            .factors_step = 1,
                            .state = segment.state.row<float>(head) + first_column,
                            .state_stride = dim,
                            .rows = segment.rows.rows,
                            .key_dim = shape.key_head_dim,
                            .columns = std::min(kernels.delta_columns, dim - first_column)});
    }
  });
}

void cpu_channel_chunked(const CpuKernels& kernels, Stream& stream, const ChannelDeltaArgs& args) {
  for (const ChannelDeltaSegment& segment : args.segments) {
    MOTLEY_CHECK(!segment.carry.is_empty(), "the chunked form needs a carry");
    MOTLEY_CHECK(*segment.carry.rows >= 0 &&
                     *segment.carry.rows <= segment.rows.first_position.value % kDeltaBlock,
                 "the carry holds rows of the block before the segment's first position");
  }
  const Arena::Scope scope(stream.scratch());
  const ChannelInputs inputs = prepare(kernels, stream, args);
  const ChannelDeltaShape& shape = args.shape;
  const int64_t scratch_floats =
      kernels.channel_block_scratch(shape.key_head_dim, shape.value_head_dim);
  auto* scratch = stream.scratch().allocate<float>(stream.threads().size() * scratch_floats);
  const int64_t tasks = static_cast<int64_t>(args.segments.size()) * shape.heads;
  stream.threads().parallel_for(tasks, 1, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      run_blocks(kernels, args, args.segments[static_cast<size_t>(i / shape.heads)], inputs,
                 i % shape.heads, scratch + worker * scratch_floats);
    }
  });
  for (const ChannelDeltaSegment& segment : args.segments) {
    *segment.carry.rows = static_cast<int32_t>(held_after(segment));
  }
}

void cpu_channel_flush_carry(const CpuKernels& kernels, Stream& stream,
                             const ChannelDeltaShape& shape, const ChannelDeltaSegment& segment) {
  const int64_t held = *segment.carry.rows;
  if (held == 0) return;
  const Arena::Scope scope(stream.scratch());
  const int64_t scratch_floats =
      kernels.channel_block_scratch(shape.key_head_dim, shape.value_head_dim);
  auto* scratch = stream.scratch().allocate<float>(stream.threads().size() * scratch_floats);
  stream.threads().parallel_for(shape.heads, 1, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      ChannelBlockTask task = block_task(shape, segment, head);
      task.scratch = scratch + worker * scratch_floats;
      task.held = held;
      task.ends_block = true;
      kernels.channel_block(task);
    }
  });
  *segment.carry.rows = 0;
}

}  // namespace motley
