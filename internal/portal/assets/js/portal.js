// What makes pages quicker to work with. Each page can be read, and most can be used, without it.
import { followChanges } from "./live.js";
import { keys } from "./keys.js";
import { tables } from "./tables.js";
import { dialogs } from "./dialogs.js";
import { choices } from "./choices.js";
import "./moved.js";
import { hurry } from "./distribute.js";
import { sameCommand } from "./start.js";
import { followLog } from "./logs.js";
import { quietForms } from "./quiet.js";
import { charts } from "./charts.js";
import { details } from "./details.js";

choices();
keys();
tables();
dialogs();
quietForms();
sameCommand();
followLog();
followChanges();
charts();
details();
hurry();
if (document.getElementById("screen")) import("./console.js").then((m) => m.showConsole());

// On a phone the areas are a row that scrolls: the one that is shown is to be seen.
const here = document.querySelector("#areas [aria-current]");
if (here) here.parentElement.scrollLeft = here.offsetLeft - 48;
