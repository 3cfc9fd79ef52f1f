// Writes tests/cases/text/pocket-tokenizer.case: texts with the ids that the Rust library gives.
//   node make_cases.mjs PACKAGES TOKENIZER.json > tests/cases/text/pocket-tokenizer.case
import {createRequire} from 'node:module';
import path from 'node:path';

import {makeStrings} from './generator.mjs';

const [packages, file] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(packages), 'index.js'));
const {Tokenizer} = require('tokenizers');

const TEXTS = [
  '', 'Hello, world!', ' leading', 'trailing  ', "it's WE'LL it'ſ", '12345 ٣٤٥ ²½', 'a\u0301 e\u0323\u0301 \u212b',
  'q\u0307\u0323', '漢字とかな、한국어 \u1100\u1161\u11a8', 'नमस्ते दुनिया', 'שָׁלוֹם', 'مرحبا', '👩‍👩‍👧‍👦🏳️‍🌈👍🏽🇺🇸',
  '<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n', '<|im_start|', '<tool_call>{"name": "f"}</tool_call>',
  '<think>\n\n</think>', '\r\n\r\n \n x', '\u0085\u00a0\u2028\u3000\u180e\u200b\ufeff', '\u0000\u0001\u001b\u007f',
  'for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
];
const BYTES = ['ff', '61e28262', 'eda080', 'f09f98', 'c0af', 'e18080e2f09192f1bf41'];

const cases = TEXTS.map((text) => Buffer.from(text)).concat(BYTES.map((hex) => Buffer.from(hex, 'hex')));
const tokenizer = Tokenizer.fromFile(file);
cases.push(...makeStrings(60, 20240601, ['<|im_start|>', '<|im_end|>', '<think>']).slice(1));
console.log('# Made by tests/text_diff/make_cases.mjs with the Rust tokenizers library 0.23.2.');
console.log('# text: a JSON string, or bytes: hexadecimal where it is not UTF-8; ids: the tokens.');
for (const bytes of cases) {
  const text = bytes.toString('utf8');
  const isUtf8 = Buffer.from(text).equals(bytes);
  // Normalised first: the library's NFC tables are older than ours.
  const ids = (await tokenizer.encode(text.normalize('NFC'), null, {addSpecialTokens: false})).getIds();
  console.log(isUtf8 ? `\ntext: ${JSON.stringify(text)}` : `\nbytes: ${bytes.toString('hex')}`);
  console.log(`ids: ${ids.join(' ')}`);
}
