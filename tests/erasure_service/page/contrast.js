// Text whose contrast with its background is below what is asked for, computed from the styles in use.
(least) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => top.slice(0, 3).map((part, i) => part * top[3] + under[i] * (1 - top[3]));
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.push(parse(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const found = [];
  let checked = 0;
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.nodeValue.trim());
    const field = ["INPUT", "SELECT"].includes(element.tagName) && element.type !== "hidden";
    if (!(own || field) || !element.checkVisibility() || element.closest(".hidden")) continue;
    const style = getComputedStyle(element), under = background(element);
    const ink = over(parse(element.closest("svg") ? style.fill : style.color), under);
    const [high, low] = [light(ink), light(under)].sort((a, b) => b - a);
    checked += 1;
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < least) found.push(`${element.tagName}.${element.className} "${element.textContent.trim().slice(0, 30)}": ${ratio.toFixed(2)}`);
  }
  return { checked, found };
}
