// How long a page of `report --html` takes to its first drawing, in headless Chromium: milliseconds from the navigation,
// as JSON. Arguments: Chromium, the folder of node_modules, the page, how often.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [name, modules, file, times] = process.argv.slice(2);
const chromium = (process.env.PATH ?? "").split(":").map((folder) => join(folder, name)).find(existsSync) ?? name;
const puppeteer = createRequire(pathToFileURL(modules + "/"))("puppeteer-core");
const drawn = [];
for (let time = 0; time < Number(times); time++) {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    const page = await browser.newPage();
    await page.setViewport({ width: 1200, height: 800 });
    await page.evaluateOnNewDocument(() => {
      // The page says that it is ready when it has drawn: two frames later it is on the screen.
      new MutationObserver((_, observer) => {
        if (document.documentElement?.dataset.state !== "ready") return;
        observer.disconnect();
        requestAnimationFrame(() => requestAnimationFrame(() => { window.drawnAt = performance.now(); }));
      }).observe(document, { attributes: true, subtree: true, attributeFilter: ["data-state"] });
    });
    await page.goto(pathToFileURL(file).href);
    await page.waitForFunction(() => window.drawnAt, { timeout: 60000 });
    drawn.push(await page.evaluate(() => window.drawnAt));
  } finally {
    await browser.close();
  }
}
console.log(JSON.stringify(drawn));
