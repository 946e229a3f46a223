// Parses an AsyncAPI document with the reference parser: `node validate.cjs PARSER FILE`. Prints the document as JSON, or the
// problems on stderr.
const { Parser } = require(process.argv[2]);
const yaml = require(require.resolve("js-yaml", { paths: [process.argv[2]] }));
const text = require("fs").readFileSync(process.argv[3], "utf8");

new Parser().parse(text).then(({ document, diagnostics }) => {
  // 0 is an error, 1 a warning. The rest are hints, such as that a newer version of the specification exists.
  const problems = diagnostics.filter((diagnostic) => diagnostic.severity <= 1);
  for (const { code, path, message } of problems) console.error(`${code} at ${path.join("/")}: ${message}`);
  if (problems.length > 0 || !document) process.exit(1);
  console.log(JSON.stringify(yaml.load(text)));
});
