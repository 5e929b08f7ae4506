// Validates resources of Prometheus Operator. Enters: a folder with node_modules as the argument, a JSON array of objects on
// standard input; leaves: what is wrong, and status 1 if anything is. A kind that it does not know is wrong.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const models = resolve(process.argv[2], "node_modules/@kubernetes-models/prometheus-operator");
let wrong = 0;
for (const object of JSON.parse(readFileSync(0, "utf8"))) {
  const name = `${object.kind} ${object.metadata?.name}`;
  try {
    const path = resolve(models, `${object.apiVersion}/${object.kind}.js`);
    const module = await import(pathToFileURL(path).href);
    new module[object.kind](object).validate();
    console.log(`${name}: valid`);
  } catch (error) {
    console.log(`${name}: ${error.message}`);
    wrong += 1;
  }
}
process.exitCode = wrong === 0 ? 0 : 1;
