// Compares tokenizer_probe with two other implementations on the same strings and prints a table.
//   node diff.mjs PROBE PACKAGES COUNT SEED NAME=TOKENIZER.json...
// PACKAGES is a folder with node_modules: @huggingface/tokenizers (JavaScript) and tokenizers (the
// Rust library's binding, which defines the format). Exit 1 on any mismatch that compareWithRust
// does not excuse. Not compared, since the JavaScript library is wrong there and no vocabulary here
// needs it: split behaviours other than Isolated and Removed, `invert`, Digits beyond ASCII, added
// tokens with single_word, and (?i:'s) on U+017F, which it does not fold (no merge shows that).
import {spawnSync} from 'node:child_process';
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';

import {makeLongStrings, makeStrings} from './generator.mjs';

const [probe, packages, count, seed, ...vocabularies] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(packages), 'index.js'));

function ours(file, strings) {
  const input = strings.map((s) => s.toString('hex')).join('\n') + '\n';
  const started = process.hrtime.bigint();
  const run = spawnSync(probe, [file], {input, maxBuffer: 1 << 30});
  if (run.status !== 0) throw new Error(`tokenizer_probe: ${run.stderr}`);
  const seconds = Number(process.hrtime.bigint() - started) / 1e9;
  const lines = run.stdout.toString().split('\n').slice(0, -1).map((line) => {
    const [ids, hex] = line.split('\t');
    return {ids, text: Buffer.from(hex, 'hex').toString()};
  });
  if (lines.length !== strings.length) throw new Error('tokenizer_probe lost lines');
  return {lines, seconds};
}

async function rustSide(file, texts) {
  const {Tokenizer} = require('tokenizers');
  const tokenizer = Tokenizer.fromFile(file);
  const lines = [];
  for (const text of texts) {
    const ids = (await tokenizer.encode(text, null, {addSpecialTokens: false})).getIds();
    lines.push({ids: ids.join(' '), text: ids.length ? await tokenizer.decode(ids, false) : ''});
  }
  return lines;
}

function jsSide(file, texts) {
  const {Tokenizer} = require('@huggingface/tokenizers');
  const json = JSON.parse(fs.readFileSync(file, 'utf8'));
  const tokenizer = new Tokenizer(json, {clean_up_tokenization_spaces: false});
  return texts.map((text) => {
    const {ids} = tokenizer.encode(text, {add_special_tokens: false});
    return {ids: ids.join(' '), text: ids.length ? tokenizer.decode(ids) : ''};
  });
}

function show(name, which, text, a, b) {
  console.log(`  ${name}: differs from ${which} on ${JSON.stringify(text.slice(0, 200))}`);
  console.log(`    motley ${a.ids.slice(0, 200)} | ${JSON.stringify(a.text.slice(0, 80))}`);
  console.log(`    ${which} ${b.ids.slice(0, 200)} | ${JSON.stringify(b.text.slice(0, 80))}`);
}

const same = (a, b) => a.ids === b.ids && a.text === b.text;

// `excused(i)`: whether a known defect of the other side explains string i.
function compare(name, which, texts, mine, theirs, excused) {
  const counts = {mismatches: 0, excused: 0};
  texts.forEach((text, i) => {
    if (same(mine[i], theirs[i])) return;
    if (excused(i)) {
      ++counts.excused;
    } else if (++counts.mismatches <= 5) {
      show(name, which, text, mine[i], theirs[i]);
    }
  });
  return counts;
}

// The Rust library normalises with tables of about Unicode 10, so marks added since keep the order
// they came in. Excused only where it agrees once the text comes normalised by Node.
async function compareWithRust(name, file, texts, mine) {
  const plain = await rustSide(file, texts);
  const normalizes = JSON.stringify(JSON.parse(fs.readFileSync(file, 'utf8')).normalizer).includes('NFC');
  const normalized = normalizes ? await rustSide(file, texts.map((t) => t.normalize('NFC'))) : plain;
  return compare(name, 'rust', texts, mine, plain, (i) => same(mine[i], normalized[i]));
}

let failed = false;
const rows = [];
for (const entry of vocabularies) {
  const [name, file] = entry.split('=');
  const specials = JSON.parse(fs.readFileSync(file, 'utf8')).added_tokens.map((t) => t.content);
  const strings = [...makeStrings(Number(count), Number(seed), specials), ...makeLongStrings(Number(seed))];
  // Buffer.toString replaces ill-formed parts as TextDecoder does.
  const texts = strings.map((s) => s.toString('utf8'));
  const mine = ours(file, strings);
  const rust = await compareWithRust(name, file, texts, mine.lines);
  const js = compare(name, 'javascript', texts, mine.lines, jsSide(file, texts), () => false);
  failed ||= rust.mismatches > 0 || js.mismatches > 0;
  rows.push([name, strings.length, rust.mismatches, rust.excused, js.mismatches, mine.seconds.toFixed(2)]);
}
const header = ['vocabulary', 'strings', 'vs rust', 'excused', 'vs javascript', 'seconds'];
for (const row of [header, ...rows]) {
  console.log(row.map((cell, i) => (i === 0 ? String(cell).padEnd(16) : String(cell).padStart(14))).join(''));
}
process.exit(failed ? 1 : 0);
