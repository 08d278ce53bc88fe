// Holds what a client printed against what was expected of it: prints what it
// saw in a few words, and fails when that is not enough.
const [printed, tool, expected] = process.argv.slice(2);
let seen;
try {
  seen = JSON.parse(printed.trim().split("\n").at(-1));
} catch {
  console.log("printed no result");
  process.exit(1);
}
const short = seen.text.length > 60 ? `${seen.text.slice(0, 60)}…` : seen.text;
console.log(`${String(seen.revision).padEnd(12)}${String(seen.tools.length).padEnd(7)}${short.replaceAll("\n", " ")}`);
if (!seen.tools.includes(tool)) console.log(`    ${tool} is not listed`);
else if (!seen.text.includes(expected)) console.log(`    does not contain: ${expected}`);
else process.exit(0);
process.exit(1);
