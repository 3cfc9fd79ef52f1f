// Seeded strings for tokenizer tests: every script, emoji sequences, combining marks, controls,
// invalid UTF-8, long words, white space, digits, code, and look-alikes of special tokens.
// Every string is a Buffer, since some are not valid UTF-8.

// xorshift32: the same strings on every machine.
export class Random {
  constructor(seed) {
    this.state = (seed >>> 0) || 1;
  }
  next() {
    let x = this.state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.state = x >>> 0;
    return this.state;
  }
  below(limit) {
    return this.next() % limit;
  }
  pick(list) {
    return list[this.below(list.length)];
  }
}

const SCRIPTS = [
  'Latin', 'Greek', 'Cyrillic', 'Armenian', 'Hebrew', 'Arabic', 'Syriac', 'Thaana', 'Devanagari',
  'Bengali', 'Gurmukhi', 'Gujarati', 'Oriya', 'Tamil', 'Telugu', 'Kannada', 'Malayalam', 'Sinhala',
  'Thai', 'Lao', 'Tibetan', 'Myanmar', 'Georgian', 'Hangul', 'Ethiopic', 'Cherokee',
  'Canadian_Aboriginal', 'Ogham', 'Runic', 'Khmer', 'Mongolian', 'Hiragana', 'Katakana', 'Bopomofo',
  'Han', 'Yi', 'Old_Italic', 'Gothic', 'Deseret', 'Inherited', 'Tagalog', 'Hanunoo', 'Buhid',
  'Tagbanwa', 'Limbu', 'Tai_Le', 'Linear_B', 'Ugaritic', 'Shavian', 'Osmanya', 'Cypriot', 'Braille',
  'Buginese', 'Coptic', 'New_Tai_Lue', 'Glagolitic', 'Tifinagh', 'Syloti_Nagri', 'Old_Persian',
  'Kharoshthi', 'Balinese', 'Cuneiform', 'Phoenician', 'Phags_Pa', 'Nko', 'Sundanese', 'Lepcha',
  'Ol_Chiki', 'Vai', 'Saurashtra', 'Kayah_Li', 'Rejang', 'Lycian', 'Carian', 'Lydian', 'Cham',
  'Tai_Tham', 'Tai_Viet', 'Avestan', 'Egyptian_Hieroglyphs', 'Samaritan', 'Lisu', 'Bamum', 'Javanese',
  'Meetei_Mayek', 'Imperial_Aramaic', 'Old_South_Arabian', 'Kaithi', 'Old_Turkic', 'Batak', 'Brahmi',
  'Mandaic', 'Chakma', 'Miao', 'Sharada', 'Takri', 'Caucasian_Albanian', 'Bassa_Vah', 'Duployan',
  'Elbasan', 'Grantha', 'Pahawh_Hmong', 'Khojki', 'Linear_A', 'Mahajani', 'Mende_Kikakui', 'Modi',
  'Mro', 'Nabataean', 'Palmyrene', 'Pau_Cin_Hau', 'Siddham', 'Tirhuta', 'Warang_Citi', 'Ahom',
  'Hatran', 'Multani', 'Old_Hungarian', 'SignWriting', 'Adlam', 'Bhaiksuki', 'Marchen', 'Newa',
  'Osage', 'Tangut', 'Nushu', 'Zanabazar_Square', 'Dogra', 'Gunjala_Gondi', 'Makasar', 'Medefaidrin',
  'Sogdian', 'Elymaic', 'Nandinagari', 'Wancho', 'Yezidi', 'Chorasmian', 'Common',
];

// Characters that Unicode added after version 14: PCRE2 10.42 and utf8proc 2.8 do not know them,
// Node and the Rust library do, each up to another version. Generously by block.
const AFTER_UNICODE_14 = [
  [0x088f, 0x0897], [0x0c5c, 0x0c5c], [0x0cdc, 0x0cdc], [0x0cf3, 0x0cf3], [0x0ece, 0x0ece],
  [0x1acf, 0x1aff], [0x1b4e, 0x1b4f], [0x1b7f, 0x1b7f], [0x1c89, 0x1c8a], [0x20c1, 0x20c1],
  [0x2427, 0x2429], [0x2ffc, 0x2fff], [0x31d0, 0x31ef], [0xa7cb, 0xa7cf], [0xa7d2, 0xa7d2],
  [0xa7d4, 0xa7d4], [0xa7da, 0xa7dc], [0xa7f1, 0xa7f1], [0x105c0, 0x105f3], [0x10d40, 0x10d8f],
  [0x10ec2, 0x10eff], [0x11240, 0x11241], [0x11380, 0x113e2], [0x116d0, 0x116e3],
  [0x11a00 + 0x1b0, 0x11aff], [0x11b00, 0x11bff], [0x11f00, 0x11f5a], [0x12f91, 0x13460],
  [0x13430, 0x143fa], [0x16100, 0x16139], [0x16d40, 0x16d79], [0x16ea0, 0x16eff],
  [0x18800, 0x18dff], [0x1b132, 0x1b132], [0x1b155, 0x1b155], [0x1c000, 0x1ceff],
  [0x1cf00, 0x1cfff], [0x1d2c0, 0x1d2d3], [0x1df25, 0x1df2a], [0x1e030, 0x1e08f],
  [0x1e4d0, 0x1e4f9], [0x1e5d0, 0x1e6ff], [0x1f6d8, 0x1f6dc], [0x1f774, 0x1f77f],
  [0x1f7da, 0x1f7da], [0x1f8b2, 0x1f8ff], [0x1fa75, 0x1fa77], [0x1fa87, 0x1fa8f],
  [0x1faad, 0x1faff], [0x1fbcb, 0x1fbef], [0x2a6e0, 0x2a6ff], [0x2b739, 0x2b73f],
  [0x2ebf0, 0x2ee5f], [0x31350, 0x3347f],
];

function isKnownEverywhere(codePoint) {
  return !AFTER_UNICODE_14.some(([low, high]) => codePoint >= low && codePoint <= high);
}

let byScript = null;
function scriptCharacters() {
  if (byScript) return byScript;
  byScript = SCRIPTS.map((script) => {
    const member = new RegExp(`^\\p{Script=${script}}$`, 'u');
    const assigned = /^\P{Cn}$/u;
    const found = [];
    for (let c = 0; c < 0x30000 && found.length < 3000; ++c) {
      if (c >= 0xd800 && c <= 0xdfff) continue;
      if (!isKnownEverywhere(c)) continue;
      const text = String.fromCodePoint(c);
      if (member.test(text) && assigned.test(text)) found.push(text);
    }
    return found;
  }).filter((list) => list.length > 0);
  return byScript;
}

const SPACES = [' ', ' ', ' ', '\n', '\r\n', '\r', '\t', '\v', '\f', '\u0085', '\u00a0', '\u1680',
  '\u2003', '\u2009', '\u2028', '\u2029', '\u202f', '\u205f', '\u3000', '\u180e', '\u200b', '\ufeff'];
const EMOJI = ['👩‍👩‍👧‍👦', '🏳️‍🌈', '👍🏽', '🇺🇸', '❤️', '🧑🏿‍🚀', '1️⃣', '☺', '🤦🏼‍♂️', '🏴󠁧󠁢󠁥󠁮󠁧󠁿', '©️', '😀'];
const CODE = ['for (int i = 0; i < n; ++i) {\n\t', 'def f(x):\n    return x**2\n', '=> { }', '/* */',
  'std::vector<int>', '"\\n\\t"', '#include <a.h>', '0x7fff', '1e-9f', 'a->b()', '&&', '||', '::',
  '<!-- x -->', '</div>', '{{ x }}', '{% if %}', 'SELECT * FROM t;', '$(pwd)', '\\\\', '---', '===', '...'];
const CONTRACTIONS = ["it's", "I'm", "WE'LL", "they'Ve", "don't", "'s", "'S", "x'd", "'re're", "can’t", "it'ſ", "x'ſa"];
const MARKS = ['\u0301', '\u0323', '\u0345', '\u0316', '\u05b0', '\u0591', '\u3099', '\u0338', '\u20dd',
  '\u1161', '\u11a8', '\u09be', '\u0bd7', '\u0f71', '\u1dce'];
const COMPOSING = ['e', 'a', 'o', 'u', 'q', 'か', '\u1100', '\uac00', 'ế', 'Å', '\u212b', '\u2126',
  '\u0958', '\ufb1d', '\u1e9b', '\u0344', '\u0f73', '\u2adc', '\uf900', '\u{1d15e}'];
const INVALID = [[0x80], [0xc0, 0xaf], [0xe2, 0x82], [0xf0, 0x9f, 0x98], [0xff], [0xed, 0xa0, 0x80],
  [0xf4, 0x90, 0x80, 0x80], [0xe0, 0x80, 0x80], [0xc3], [0xf8, 0x88, 0x80, 0x80, 0x80], [0xfe],
  [0xf1, 0x80, 0x41], [0xe1, 0x80, 0xe2, 0xf0, 0x91, 0x92, 0xf1, 0xbf, 0x41]];

const word = (r, letters, limit) => {
  let text = '';
  for (let i = 1 + r.below(limit); i > 0; --i) text += r.pick(letters);
  return text;
};
const LOWER = [...'etaoinshrdlucmfwypvbgkjqxz'];

// One part of a string; each kind is a line.
const KINDS = [
  (r) => word(r, LOWER, 12),
  (r) => word(r, LOWER.map((c) => c.toUpperCase()), 8),
  (r) => ' ' + word(r, LOWER, 9),
  (r) => word(r, r.pick(scriptCharacters()), 12),
  (r) => word(r, r.pick(scriptCharacters()), 3) + r.pick(SPACES) + word(r, r.pick(scriptCharacters()), 3),
  (r) => r.pick(EMOJI) + (r.below(2) ? r.pick(EMOJI) : ''),
  (r) => r.pick(COMPOSING) + word(r, MARKS, 5),
  (r) => word(r, SPACES, 6),
  (r) => r.pick([' ', '\n', '\t', ' \n', '\r\n']).repeat(1 + r.below(20)),
  (r) => String(r.next()).slice(0, 1 + r.below(10)),
  (r) => word(r, ['١', '२', '৩', '４', '²', '½', 'Ⅷ', '①', '〇', '7'], 6),
  (r) => r.pick(CODE),
  (r) => r.pick(CONTRACTIONS),
  (r) => word(r, [...'!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~'], 6),
  (r) => String.fromCharCode(r.below(32)),
  (r) => String.fromCharCode(0x7f + r.below(0x22)),
  (r) => word(r, [...'「」、。！？—–…“”‘’«»¿¡€£¥©®°±×÷→←∑√∞≠'], 5),
];

function lookAlike(r, specials) {
  const token = r.pick(specials);
  switch (r.below(6)) {
    case 0: return token;
    case 1: return token + token;
    case 2: return token.slice(0, -1);
    case 3: return token.slice(1);
    case 4: return ' ' + token + '\n';
    default: return token.slice(0, 3) + ' ' + token.slice(3);
  }
}

export function makeStrings(count, seed, specials) {
  const r = new Random(seed);
  const strings = [Buffer.from('')];
  while (strings.length < count) {
    const parts = [];
    for (let i = 1 + r.below(10); i > 0; --i) {
      const kind = r.below(100);
      if (kind < 5) parts.push(Buffer.from(r.pick(INVALID)));
      else if (kind < 12) parts.push(Buffer.from(lookAlike(r, specials)));
      else parts.push(Buffer.from(r.pick(KINDS)(r)));
    }
    strings.push(Buffer.concat(parts));
  }
  return strings;
}

// Long words and runs, too slow to have many of.
export function makeLongStrings(seed) {
  const r = new Random(seed + 1);
  const scripts = scriptCharacters();
  const texts = ['a'.repeat(20000), 'A'.repeat(20000), ' '.repeat(20000), '\n'.repeat(20000),
    '1'.repeat(20000), '漢'.repeat(8000), '🙂'.repeat(5000), '\u0301'.repeat(3000), '='.repeat(20000),
    ' \n'.repeat(9000) + 'x', 'é'.repeat(9000), 'ab'.repeat(9000)];
  for (let i = 0; i < 12; ++i) texts.push(word(r, LOWER, 1) + Array.from({length: 5000}, () => r.pick(LOWER)).join(''));
  for (let i = 0; i < 24; ++i) {
    const letters = r.pick(scripts);
    texts.push(Array.from({length: 1500}, () => r.pick(letters)).join(''));
  }
  return texts.map((text) => Buffer.from(text));
}
