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
import { details } from "./details.js";
import { ages } from "./rows.js";
import { menus } from "./menus.js";

choices();
keys();
tables();
dialogs();
quietForms();
sameCommand();
followLog();
followChanges();
details();
menus();
ages();
hurry();
if (document.getElementById("screen")) import("./console.js").then((m) => m.showConsole());
