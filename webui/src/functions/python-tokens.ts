export type Token = { kind: "keyword" | "string" | "comment" | "number" | "name"; text: string };

const KEYWORDS = new Set((
  "False None True and as assert async await break class continue def del elif else except finally for from global if import in is "
  + "lambda match nonlocal not or pass raise return try while with yield"
).split(" "));

const PATTERN = /(?<string>[rRbBfFuU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|(?<comment>#[^\n]*)|(?<number>\b\d[\w.]*)|(?<word>[A-Za-z_]\w*)|[\s\S]/g;

/** Python source as colored pieces. Joined, their texts are the source. */
export function tokens(source: string): Token[] {
  const found: Token[] = [];
  for (const match of source.matchAll(PATTERN)) {
    const { string, comment, number, word } = match.groups!;
    const kind = string !== undefined ? "string" : comment !== undefined ? "comment" : number !== undefined ? "number" : word !== undefined && KEYWORDS.has(word) ? "keyword" : "name";
    const last = found.at(-1);
    if (kind === "name" && last?.kind === "name") last.text += match[0];
    else found.push({ kind, text: match[0] });
  }
  return found;
}
