// Old addresses had what they were about behind the #.
const moved = { "#/instances": "/instances", "#/nodes": "/nodes", "#/templates": "/templates", "#/permission-groups": "/permission-groups" };
const follow = () => { const to = moved[location.hash.split("?")[0]]; if (to) location.replace(to); };
addEventListener("hashchange", follow);
follow();
