// Which optional groups of ops a model calls, drafts included.
#pragma once

#include "ops/op_table.h"
#include "spec/model_spec.h"

namespace motley {

OpNeeds op_needs(const ModelSpec& spec);

}  // namespace motley
