// Prints what JSON.parse makes of each line of hexadecimal; the form is described in main.rs.
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const own = (object, key) =>
  object !== null && typeof object === "object" && !Array.isArray(object) && Object.hasOwn(object, key)
    ? object[key]
    : undefined;

function field(value) {
  if (value === undefined || value === null) return "-";
  if (typeof value === "string") return "s" + Buffer.from(value, "utf8").toString("hex");
  if (typeof value === "boolean") return "b" + value;
  if (Array.isArray(value)) return "a";
  if (typeof value === "object") return "o";
  const bits = Buffer.alloc(8);
  bits.writeDoubleBE(value === 0 ? 0 : value);
  return "n" + bits.toString("hex");
}

function read(line) {
  let message;
  try {
    message = JSON.parse(decoder.decode(Buffer.from(line, "hex")));
  } catch {
    return "refused";
  }
  const method = own(message, "method");
  const params = method === undefined ? undefined : own(message, "params");
  const token = own(own(params, "_meta"), "progressToken");
  return [method, own(params, "name"), own(params, "uri"), own(message, "id"), token].map(field).join(" ");
}

const lines = require("fs").readFileSync(0, "latin1").split("\n").slice(0, -1);
process.stdout.write(lines.map((line) => read(line) + "\n").join(""));
