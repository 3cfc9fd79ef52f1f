// Renders templates with @huggingface/jinja: one JSON request per line in, one answer per line out.
import { Template } from "@huggingface/jinja";
import { createInterface } from "node:readline";

const parsed = new Map();
for await (const line of createInterface({ input: process.stdin })) {
  const { template, context } = JSON.parse(line);
  let answer;
  try {
    if (!parsed.has(template)) parsed.set(template, new Template(template));
    answer = { output: parsed.get(template).render(context) };
  } catch (error) {
    answer = { error: String(error.message) };
  }
  console.log(JSON.stringify(answer));
}
