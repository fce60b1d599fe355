// Opens the page of a recording as a person would, in headless Chromium, by keys and by mouse; prints what it saw as
// JSON. Arguments: Chromium, the page, a folder for pictures, the folder of node_modules.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [chromium, file, pictures, modules] = process.argv.slice(2);
const puppeteer = createRequire(pathToFileURL(modules + "/"))("puppeteer-core");
const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
const seen = { errors: [], requests: [] };
try {
  const page = await browser.newPage();
  await page.setViewport({ width: 1200, height: 800 });
  page.on("pageerror", (error) => seen.errors.push(error.message));
  page.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()));
  page.on("request", (request) => seen.requests.push(request.url().slice(0, 5)));
  await page.goto(pathToFileURL(file).href);
  await page.waitForSelector("[data-state]", { timeout: 60000 });
  const text = (selector) => page.$eval(selector, (element) => element.innerText);
  const colours = (selector) => page.$eval(selector, (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const found = new Set();
    for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) found.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
    return found.size;
  });
  const picture = (name) => page.screenshot({ path: `${pictures}/${name}.png` });

  seen.state = await page.evaluate(() => document.documentElement.dataset.state);
  seen.first = await text("#view-first");
  await picture("first");

  await page.keyboard.press("2");
  seen.flame = await colours("#flame");
  seen.walk = [];
  for (const key of ["ArrowDown", "ArrowDown", "Enter", "ArrowRight", "ArrowUp"]) {
    await page.keyboard.press(key);
    seen.walk.push(await text("#detail"));
  }
  seen.zoomed = await text("#flame-path");
  await picture("flame");
  await page.keyboard.press("Escape");
  seen.whole = await text("#flame-path");
  await page.keyboard.press("f");

  await page.keyboard.press("c");
  seen.sandwich = await text("#sandwich-name");
  seen.edges = await text("#edges");

  await page.keyboard.press("4");
  seen.timeline = { note: await text("#timeline-note"), colours: await colours("#timeline") };
  await page.keyboard.press("+");
  await picture("timeline");
  const area = await (await page.$("#timeline")).boundingBox();
  await page.mouse.move(area.x + 300, area.y + 40);
  await page.mouse.down();
  await page.mouse.move(area.x + 600, area.y + 40);
  await page.mouse.up();
  seen.span = await text("#span-note");
  await page.click("#span-clear");

  await page.keyboard.press("5");
  await page.keyboard.press("/");
  await page.keyboard.type("fib");
  seen.found = await page.$$eval("#view-functions tbody tr td.name button", (names) => names.map((name) => name.innerText));
  await page.keyboard.press("Escape");
  await page.keyboard.press("6");
  seen.trust = await text("#view-trust");

  const before = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.keyboard.press("t");
  seen.themes = [before, await page.evaluate(() => getComputedStyle(document.body).backgroundColor)];
  await picture("dark");
  Object.assign(seen, await page.evaluate(() => {
    const { recording } = window.scalpel;
    const sum = (numbers) => numbers.reduce((all, each) => all + each, 0);
    const { calls } = recording;
    return {
      calls: sum(recording.cell.calls),
      spans: calls ? calls.start.length : null,
      roots: Math.max(...window.scalpel.weights.map((weight) => {
        const tree = new Tree(recording, { weight, thread: -1, span: null });
        return Math.abs(tree.total[0] - sum(recording.cell[weight.metric]));
      })),
    };
  }));
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
