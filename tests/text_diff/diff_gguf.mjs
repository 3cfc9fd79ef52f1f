// node diff_gguf.mjs PROBE PACKAGES FILE...: keys and tensors as motley and @huggingface/gguf read them.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import path from "node:path";

const [probe, packages, ...files] = process.argv.slice(2);
const require = createRequire(path.resolve(packages, "package.json"));
const { gguf } = require("@huggingface/gguf");

// Whole numbers as texts, as the probe writes them; floating-point numbers as numbers.
function plain(value, isFloat) {
  if (Array.isArray(value)) return value.map((entry) => plain(entry, isFloat));
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number" && !isFloat) return value.toString();
  return value;
}

let failures = 0;
for (const file of files) {
  const ours = JSON.parse(execFileSync(probe, [file], { maxBuffer: 1 << 30 }).toString());
  const { metadata, tensorInfos, tensorDataOffset } = await gguf(path.resolve(file), {
    allowLocalFile: true,
  });
  const problems = [];
  const same = (what, a, b) => {
    if (JSON.stringify(a) !== JSON.stringify(b)) {
      problems.push(`${what}: ${JSON.stringify(a)?.slice(0, 80)} and ${JSON.stringify(b)?.slice(0, 80)}`);
    }
  };
  const counts = ["version", "tensor_count", "kv_count"];
  same("version", ours.version, Number(metadata.version));
  same("keys", Object.keys(ours.keys).sort(), Object.keys(metadata).filter((key) => !counts.includes(key)).sort());
  for (const [key, value] of Object.entries(ours.keys)) {
    same(key, value, plain(metadata[key], typeof value === "number"));
  }
  if (tensorDataOffset !== undefined) same("data", ours.data, Number(tensorDataOffset));
  const theirs = tensorInfos.map((tensor) => ({
    name: tensor.name,
    shape: tensor.shape.map(Number),
    type: tensor.dtype,
    offset: Number(tensor.offset),
  }));
  theirs.sort((a, b) => a.offset - b.offset);
  same("number of tensors", ours.tensors.length, theirs.length);
  ours.tensors.forEach((tensor, i) => same(tensor.name, tensor, theirs[i]));
  console.log(
    `${path.basename(file)}: ${Object.keys(ours.keys).length} keys, ${ours.tensors.length} tensors, ` +
      (problems.length ? `${problems.length} differences` : "the same"),
  );
  for (const problem of problems.slice(0, 10)) console.log(`  ${problem}`);
  failures += problems.length;
}
process.exit(failures ? 1 : 0);
