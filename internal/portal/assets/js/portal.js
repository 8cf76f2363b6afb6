// What makes pages quicker to work with. Each page can be read, and most can be used, without it.
import { followChanges } from "./live.js";
import { keys } from "./keys.js";
import { tables } from "./tables.js";
import { dialogs } from "./dialogs.js";
import { choices } from "./choices.js";
import { hurry } from "./distribute.js";
import { quietForms } from "./quiet.js";

choices();
keys();
tables();
dialogs();
quietForms();
followChanges();
hurry();

// Old addresses had what they were about behind the #.
const moved = { "#/instances": "/instances", "#/nodes": "/nodes", "#/templates": "/templates", "#/permission-groups": "/permission-groups" };
const follow = () => { const to = moved[location.hash.split("?")[0]]; if (to) location.replace(to); };
addEventListener("hashchange", follow);
follow();
