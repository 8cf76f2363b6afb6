package portal_test

import (
	"net/url"
	"strings"
	"testing"
)

// TestKeys: root makes, changes and deletes keys; the private key is shown once.
func TestKeys(t *testing.T) {
	newWorld(t, nil).get("/keys").has(200, "Authentication is disabled", "!Create API key")
	w := newGuarded(t)
	w.logIn()
	w.get("/keys").has(200, "No API keys yet", "Create API key")
	w.get("/keys/create").has(200, "Valid for (days)", "shown once")
	w.post("/keys/create", url.Values{"id": {"ci"}, "groups": {"builders, <b>x"}}).has(400, "invalid validity")
	w.post("/keys/create", url.Values{"id": {"ci"}, "groups": {"builders"}, "days": {"30"}}).has(200, "Private key",
		"MII")
	w.get("/keys").has(200, "ci", "builders", " d ", "!MII")
	w.get("/keys/change?id=ci").has(200, `value="builders"`)
	w.post("/keys/change", url.Values{"id": {"ci"}, "groups": {"others"}}).leadsTo("/keys")
	w.get("/keys").has(200, "others", "!builders")
	w.get("/keys/delete?id=ci").has(200, "Delete ci", "cannot be undone")
	w.post("/keys/delete", url.Values{"id": {"ci"}}).leadsTo("/keys")
	w.get("/keys").has(200, "No API keys yet")
	w.get("/keys/change?id=nobody").has(404, "Not found")
}

// TestAccount: the page of the account names the user, the credential and the end of the session.
func TestAccount(t *testing.T) {
	newWorld(t, nil).get("/account").has(200, "Authentication is disabled", "!Log out")
	w := newGuarded(t)
	w.get("/account").leadsTo("/login?return=%2Faccount")
	w.logIn()
	page := w.get("/account")
	page.has(200, ">root token<", "may do everything", "Session ends", "in 7 h", "Start instances from templates.",
		"Push; create templates and tags.", `<form method="post" action="/logout">`, "!missing</span>")
	if n := strings.Count(page.Text, `href="/account"`); n != 2 {
		t.Errorf("%d links lead to the account: one in the navigation and one in its menu are wanted", n)
	}
}

// TestPermissionGroups: made, changed and deleted, of both services.
func TestPermissionGroups(t *testing.T) {
	newWorld(t, nil).get("/admin/ui").has(200, "Authentication is disabled")
	w := newGuarded(t)
	w.logIn()
	w.get("/permission-groups").has(200, "No permission groups yet")
	w.get("/admin/ui").has(200, "No permission groups yet")
	w.get("/admin/ui/").has(200, "No permission groups yet")
	form := w.get("/permission-groups/edit")
	form.has(200, "Start instances from templates.", "Push; create templates and tags.", `value="list_vms"`,
		`name="registry"`)
	w.post("/permission-groups/edit", form.form()).has(400, "Name required")
	w.post("/permission-groups/edit", form.form("name", "a<b>/c", "controller", "list_vms", "controller", "start_vm",
		"registry", "pull_vm")).leadsTo("/permission-groups")
	w.get("/permission-groups").has(200, "a&lt;b&gt;/c", "2 permissions", "1 permission<", "!a<b>")
	at := "?name=" + url.QueryEscape("a<b>/c")
	w.get("/permission-groups/edit"+at).has(200, `value="list_vms" checked`, `value="pull_vm" checked`,
		`value="save_image">`)
	w.post("/permission-groups/edit", w.get("/permission-groups/edit"+at).form("controller", "no_such")).has(409,
		"failed")
	w.post("/permission-groups/delete", w.get("/permission-groups/delete"+at).form()).leadsTo("/permission-groups")
	w.get("/permission-groups").has(200, "No permission groups yet")
}
