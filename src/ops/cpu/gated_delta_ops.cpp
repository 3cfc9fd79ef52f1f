#include <cmath>

#include "ops/cpu/cpu_ops.h"

namespace motley {
namespace {

// Per row: factors of q and k, and the gates. Indexed by the row of the batch.
struct DeltaInputs {
  float* q_scale = nullptr;    // [rows, key_heads]
  float* k_scale = nullptr;    // [rows, key_heads]
  float* beta = nullptr;       // [rows, value_heads]
  float* log_decay = nullptr;  // [rows, value_heads]; the factor itself for the recurrent form
};

enum class DecayForm { kLog, kFactor };

void prepare_row(const CpuKernels& kernels, const GatedDeltaArgs& args, DecayForm form, int64_t row,
                 const DeltaInputs& inputs) {
  const GatedDeltaShape& shape = args.shape;
  const float* q = args.qkv.row<float>(row);
  const float* k = q + shape.key_dim();
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(shape.key_head_dim));
  for (int64_t h = 0; h < shape.key_heads; ++h) {
    const int64_t cell = row * shape.key_heads + h;
    const int64_t start = h * shape.key_head_dim;
    inputs.q_scale[cell] = kernels.l2_scale(q + start, shape.key_head_dim, query_scale);
    inputs.k_scale[cell] = kernels.l2_scale(k + start, shape.key_head_dim, 1.0f);
  }
  float* log_decay = inputs.log_decay + row * shape.value_heads;
  kernels.delta_gates(args.beta.row<float>(row), args.decay.row<float>(row), args.a_log.as<float>(),
                      args.dt_bias.as<float>(), shape.value_heads,
                      inputs.beta + row * shape.value_heads, log_decay);
  if (form == DecayForm::kFactor) kernels.exp(log_decay, shape.value_heads, log_decay);
}

DeltaInputs prepare(const CpuKernels& kernels, Stream& stream, const GatedDeltaArgs& args,
                    DecayForm form) {
  const GatedDeltaShape& shape = args.shape;
  MOTLEY_CHECK(args.qkv.cols() == shape.conv_dim() && args.out.cols() == shape.value_dim() &&
                   args.beta.cols() == shape.value_heads && args.decay.cols() == shape.value_heads,
               "views must match the shape of the layer");
  MOTLEY_CHECK(shape.value_heads % shape.key_heads == 0, "whole value heads per key head");
  const int64_t rows = args.qkv.rows();
  DeltaInputs inputs;
  inputs.q_scale = stream.scratch().allocate<float>(rows * shape.key_heads);
  inputs.k_scale = stream.scratch().allocate<float>(rows * shape.key_heads);
  inputs.beta = stream.scratch().allocate<float>(rows * shape.value_heads);
  inputs.log_decay = stream.scratch().allocate<float>(rows * shape.value_heads);
  for (const GatedDeltaSegment& segment : args.segments) {
    const int64_t first = segment.rows.first_row;
    stream.threads().parallel_for(segment.rows.rows, row_grain(2 * shape.key_dim()),
                                  [&](int, int64_t begin, int64_t end) {
                                    for (int64_t t = begin; t < end; ++t) {
                                      prepare_row(kernels, args, form, first + t, inputs);
                                    }
                                  });
  }
  return inputs;
}

DeltaRecurrentTask recurrent_task(const GatedDeltaArgs& args, const GatedDeltaSegment& segment,
                                  const DeltaInputs& inputs, int64_t head, int64_t first_column) {
  const GatedDeltaShape& shape = args.shape;
  const int64_t key_head = head / (shape.value_heads / shape.key_heads);
  const int64_t row = segment.rows.first_row;
  DeltaRecurrentTask task;
  task.q = args.qkv.row<float>(row) + key_head * shape.key_head_dim;
  task.k = task.q + shape.key_dim();
  task.v =
      args.qkv.row<float>(row) + 2 * shape.key_dim() + head * shape.value_head_dim + first_column;
  task.qkv_stride = args.qkv.row_stride;
  task.q_scale = inputs.q_scale + row * shape.key_heads + key_head;
  task.k_scale = inputs.k_scale + row * shape.key_heads + key_head;
  task.scale_stride = shape.key_heads;
  task.beta = inputs.beta + row * shape.value_heads + head;
  task.decay = inputs.log_decay + row * shape.value_heads + head;
  task.gate_stride = shape.value_heads;
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
void fill_ring(const GatedDeltaArgs& args, const GatedDeltaSegment& segment,
               const DeltaInputs& inputs) {
  const GatedDeltaShape& shape = args.shape;
  MOTLEY_CHECK(segment.ring.keys.rows() >= segment.rows.rows, "the ring holds every row");
  for (int64_t t = 0; t < segment.rows.rows; ++t) {
    const int64_t row = segment.rows.first_row + t;
    const float* k = args.qkv.row<float>(row) + shape.key_dim();
    float* keys = segment.ring.keys.row<float>(t);
    for (int64_t i = 0; i < shape.key_dim(); ++i) {
      keys[i] = k[i] * inputs.k_scale[row * shape.key_heads + i / shape.key_head_dim];
    }
    std::copy_n(inputs.log_decay + row * shape.value_heads, shape.value_heads,
                segment.ring.factors.row<float>(t));
  }
}

// Everything of a block task but the rows; `inputs` and `args` are null when only folding.
DeltaBlockTask block_task(const GatedDeltaShape& shape, const GatedDeltaSegment& segment,
                          int64_t key_head) {
  const int64_t heads = shape.value_heads / shape.key_heads;
  const int64_t first_head = key_head * heads;
  const DeltaCarry& carry = segment.carry;
  DeltaBlockTask task;
  task.state = segment.state.row<float>(first_head);
  task.state_stride = segment.state.row_stride;
  task.carry_keys = carry.keys.as<float>() + key_head * shape.key_head_dim;
  task.carry_keys_stride = carry.keys.row_stride;
  task.carry_updates = carry.updates.as<float>() + first_head * shape.value_head_dim;
  task.carry_updates_stride = carry.updates.row_stride;
  task.carry_decays = carry.decays.as<float>() + first_head;
  task.carry_decays_stride = carry.decays.row_stride;
  task.heads = heads;
  task.key_dim = shape.key_head_dim;
  task.value_dim = shape.value_head_dim;
  return task;
}

void point_at_row(const GatedDeltaArgs& args, const DeltaInputs& inputs, int64_t key_head,
                  int64_t row, DeltaBlockTask* task) {
  const GatedDeltaShape& shape = args.shape;
  const int64_t first_head = key_head * task->heads;
  task->q = args.qkv.row<float>(row) + key_head * shape.key_head_dim;
  task->k = task->q + shape.key_dim();
  task->v = args.qkv.row<float>(row) + 2 * shape.key_dim() + first_head * shape.value_head_dim;
  task->qkv_stride = args.qkv.row_stride;
  task->q_scale = inputs.q_scale + row * shape.key_heads + key_head;
  task->k_scale = inputs.k_scale + row * shape.key_heads + key_head;
  task->scale_stride = shape.key_heads;
  task->beta = inputs.beta + row * shape.value_heads + first_head;
  task->log_decay = inputs.log_decay + row * shape.value_heads + first_head;
  task->gate_stride = shape.value_heads;
  task->out = args.out.row<float>(row) + first_head * shape.value_head_dim;
  task->out_stride = args.out.row_stride;
}

// Takes a segment's rows through their blocks for one key head.
void run_blocks(const CpuKernels& kernels, const GatedDeltaArgs& args,
                const GatedDeltaSegment& segment, const DeltaInputs& inputs, int64_t key_head,
                float* scratch) {
  DeltaBlockTask task = block_task(args.shape, segment, key_head);
  task.scratch = scratch;
  task.held = *segment.carry.rows;
  for (int64_t t = 0; t < segment.rows.rows; t += task.rows) {
    const int64_t to_boundary = kDeltaBlock - (segment.rows.first_position.value + t) % kDeltaBlock;
    task.rows = std::min<int64_t>(to_boundary, segment.rows.rows - t);
    task.ends_block = task.rows == to_boundary;
    point_at_row(args, inputs, key_head, segment.rows.first_row + t, &task);
    kernels.delta_block(task);
    task.held = task.ends_block ? 0 : task.held + task.rows;
  }
}

// Rows in the carry after the segment.
int64_t held_after(const GatedDeltaSegment& segment) {
  const int64_t end = segment.rows.first_position.value + segment.rows.rows;
  const bool crosses_boundary = end % kDeltaBlock < segment.rows.rows;
  return crosses_boundary ? end % kDeltaBlock : *segment.carry.rows + segment.rows.rows;
}

}  // namespace

void cpu_delta_recurrent(const CpuKernels& kernels, Stream& stream, const GatedDeltaArgs& args) {
  const Arena::Scope scope(stream.scratch());
  const DeltaInputs inputs = prepare(kernels, stream, args, DecayForm::kFactor);
  for (const GatedDeltaSegment& segment : args.segments) {
    if (!segment.ring.is_empty()) fill_ring(args, segment, inputs);
  }
  const int64_t workers = stream.threads().size();
  const int64_t scratch_floats = kernels.delta_recurrent_scratch(args.shape.key_head_dim);
  auto* scratch = stream.scratch().allocate<float>(workers * scratch_floats);

  const int64_t dim = args.shape.value_head_dim;
  const int64_t strips = (dim + kernels.delta_columns - 1) / kernels.delta_columns;
  const int64_t per_segment = strips * args.shape.value_heads;
  const int64_t tasks = static_cast<int64_t>(args.segments.size()) * per_segment;
  stream.threads().parallel_ranges(tasks, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const GatedDeltaSegment& segment = args.segments[static_cast<size_t>(i / per_segment)];
      if (segment.rows.rows == 0) continue;
      const int64_t strip = i % per_segment;
      const int64_t first_column = strip % strips * kernels.delta_columns;
      DeltaRecurrentTask task = recurrent_task(args, segment, inputs, strip / strips, first_column);
      task.columns = std::min(kernels.delta_columns, dim - first_column);
      if (const int64_t next = strip + 1; i + 1 < end && next < per_segment) {
        task.next_state =
            segment.state.row<float>(next / strips) + next % strips * kernels.delta_columns;
      }
      task.scratch = scratch + worker * scratch_floats;
      kernels.delta_recurrent(task);
    }
  });
}

void cpu_delta_commit(const CpuKernels& kernels, Stream& stream, const GatedDeltaShape& shape,
                      const GatedDeltaSegment& segment) {
  if (segment.rows.rows == 0) return;
  const DeltaRing& ring = segment.ring;
  const int64_t dim = shape.value_head_dim;
  const int64_t strips = (dim + kernels.delta_columns - 1) / kernels.delta_columns;
  stream.threads().parallel_ranges(
      strips * shape.value_heads, [&](int, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t head = i / strips;
          const int64_t key_head = head / (shape.value_heads / shape.key_heads);
          const int64_t first_column = i % strips * kernels.delta_columns;
          kernels.delta_replay({.keys = ring.keys.row<float>(0) + key_head * shape.key_head_dim,
                                .keys_stride = ring.keys.row_stride,
                                .updates = ring.updates.row<float>(0) + head * dim + first_column,
                                .updates_stride = ring.updates.row_stride,
                                .factors = ring.factors.row<float>(0) + head,
                                .factors_stride = ring.factors.row_stride,
                                .state = segment.state.row<float>(head) + first_column,
                                .state_stride = dim,
                                .rows = segment.rows.rows,
                                .key_dim = shape.key_head_dim,
                                .columns = std::min(kernels.delta_columns, dim - first_column)});
        }
      });
}

void cpu_delta_chunked(const CpuKernels& kernels, Stream& stream, const GatedDeltaArgs& args) {
  for (const GatedDeltaSegment& segment : args.segments) {
    MOTLEY_CHECK(!segment.carry.is_empty(), "the chunked form needs a carry");
    MOTLEY_CHECK(*segment.carry.rows >= 0 &&
                     *segment.carry.rows <= segment.rows.first_position.value % kDeltaBlock,
                 "the carry holds rows of the block before the segment's first position");
  }
  const Arena::Scope scope(stream.scratch());
  const DeltaInputs inputs = prepare(kernels, stream, args, DecayForm::kLog);
  const GatedDeltaShape& shape = args.shape;
  const int64_t scratch_floats =
      kernels.delta_block_scratch(shape.key_head_dim, shape.value_head_dim);
  auto* scratch = stream.scratch().allocate<float>(stream.threads().size() * scratch_floats);
  const int64_t tasks = static_cast<int64_t>(args.segments.size()) * shape.key_heads;
  stream.threads().parallel_for(tasks, 1, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const GatedDeltaSegment& segment = args.segments[static_cast<size_t>(i / shape.key_heads)];
      run_blocks(kernels, args, segment, inputs, i % shape.key_heads,
                 scratch + worker * scratch_floats);
    }
  });
  for (const GatedDeltaSegment& segment : args.segments) {
    *segment.carry.rows = static_cast<int32_t>(held_after(segment));
  }
}

void cpu_delta_flush_carry(const CpuKernels& kernels, Stream& stream, const GatedDeltaShape& shape,
                           const GatedDeltaSegment& segment) {
  const int64_t held = *segment.carry.rows;
  if (held == 0) return;
  const Arena::Scope scope(stream.scratch());
  const int64_t scratch_floats =
      kernels.delta_block_scratch(shape.key_head_dim, shape.value_head_dim);
  auto* scratch = stream.scratch().allocate<float>(stream.threads().size() * scratch_floats);
  stream.threads().parallel_for(shape.key_heads, 1, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t key_head = begin; key_head < end; ++key_head) {
      DeltaBlockTask task = block_task(shape, segment, key_head);
      task.scratch = scratch + worker * scratch_floats;
      task.held = held;
      task.ends_block = true;
      kernels.delta_block(task);
    }
  });
  *segment.carry.rows = 0;
}

}  // namespace motley
