package main

import (
	"errors"
	"fmt"

	"github.com/buildyard/buildyard/api"
)

var accessFlows = []flow{
	{name: "log-in", clause: "log-in by root token, and log-out", do: logIn},
	{
		name: "log-in-key",
		clause: "log-in by API key: the handshake happens in the browser; its rights are visible; a session that is " +
			"lost",
		do: logInByKey, alone: true,
	},
	{name: "log-in-oidc", clause: "log-in by OIDC; a refusal is told", do: logInByProvider, alone: true},
	{name: "keys", clause: "API keys: made, shown once, changed, revoked", do: useKeys, alone: true},
	{
		name: "permission-groups", clause: "permission groups: made, changed, deleted; /admin/ui too",
		do: usePermissionGroups, alone: true,
	},
	{
		name: "few-rights", clause: "a missing permission is named, and the rest of the page is shown; of nodes and templates only those with " +
			"a right, as the visitor's own calls of the API return them",
		do:    haveFewRights,
		alone: true,
	},
	{
		name:   "fresh",
		clause: "empty states teach: a cloud without anything says what to do, with the exact join command",
		do:     seeNothing, alone: true,
	},
}

func logIn(p *page) error {
	return steps(
		p.toGuarded("/instances"), p.at("/login?return=%2Finstances"), p.picture("asked"),
		p.refusal(403), p.fill(`input[name="token"]`, "not the token"), p.keys("\r"), p.there(`[role="alert"]`),
		p.picture("refused"),
		p.fill(`input[name="token"]`, rootToken), p.keys("\r"), p.at("/instances"), p.see("No instances."),
		p.picture("inside"),
		p.toGuarded("/account"), p.see("root token", "may do everything", "Session ends"), p.picture("account"),
		p.click(`form[action="/logout"] button`), p.at("/login"), p.toGuarded("/instances"),
		p.at("/login?return=%2Finstances"),
	)
}

func logInByKey(p *page) error {
	id := p.name()
	private, err := p.root.CreateKey(p, api.NewKey{ID: id, TTL: 3600, Groups: []string{id}})
	if err != nil {
		return err
	}
	other, err := p.root.CreateKey(p, api.NewKey{ID: id + "-other", TTL: 3600, Groups: []string{id}})
	if err != nil {
		return err
	}
	with := func(key string) func() error {
		return func() error {
			return steps(p.fill("#key-id", id), p.script(fmt.Sprintf(`document.getElementById("key-text").value = %q`, key)),
				p.click("#key-login button"))
		}
	}
	return steps(
		p.grant("list_vms"), p.toGuarded("/login?return=%2Finstances"), p.there("#key-login:not([hidden])"),
		p.picture("asked"), with("no key"), p.see("neither a PEM file nor base64"),
		with(other.Reveal()), p.see("does not belong to this key ID"), p.picture("refused"),
		with(private.Reveal()), p.at("/instances"), p.see("No instances."), p.picture("inside"),
		p.holds(fmt.Sprintf(`document.body.textContent.includes(%q)`, id)), p.cookie,
		// The session is lost under a page that is open.
		p.live(), func() error { return p.root.DeleteKey(p, id) }, p.at("/login?return=%2Finstances"),
		p.picture("lost"), p.fill(`input[name="token"]`, rootToken), p.keys("\r"), p.at("/instances"),
		func() error { return p.root.DeleteKey(p, id+"-other") }, p.revoke,
	)
}

func logInByProvider(p *page) error {
	who := func(name string) func() error {
		return func() error {
			p.services.idp.LogsIn(name, map[string]any{"preferred_username": name, "groups": []string{p.name()}})
			return nil
		}
	}
	return steps(
		p.visitsServices, p.grant("list_vms"), who(""), p.toGuarded("/instances"), p.see("Log in with "+firm),
		p.refusal(403), p.click(`a[href^="/login/oidc"]`), p.there(`[role="alert"]`), p.picture("refused"),
		who("ann"), p.toGuarded("/instances"), p.click(`a[href^="/login/oidc"]`), p.at("/instances"),
		p.see("No instances."), p.picture("inside"),
		p.click(`form[action="/logout"] button`), p.at("/login"), p.revoke,
	)
}

// grant grants permissions to the group that has the name of the flow in this look.
func (p *page) grant(permissions ...string) func() error {
	return func() error {
		return p.root.SetPermissionGroup(p, api.PermissionGroup{Name: p.name(), Permissions: permissions})
	}
}

// revoke takes them away.
func (p *page) revoke() error { return p.root.DeletePermissionGroup(p, p.name()) }

func useKeys(p *page) error {
	id := p.name()
	return steps(
		p.enter, p.toGuarded("/keys"), p.see("No API keys yet"), p.picture("none"), p.click(`a[href="/keys/create"]`),
		p.there("dialog[open] form"),
		p.fill("dialog[open] #id", id), p.fill("dialog[open] #groups", "builders, <b>others</b>"), p.picture("asked"),
		p.click("dialog[open] .acts button"),
		p.see("Shown once", "Private key", "MII", "1 done"), p.picture("made"),
		p.toGuarded("/keys"), p.see(id, "builders, <b>others</b>"),
		p.holds(`/36[45] d/.test(document.querySelector("main tbody").textContent)`), p.gone("MII"), p.picture("list"),
		p.click(`a[href^="/keys/change"]`), p.there("dialog[open] form"), p.fill("dialog[open] #groups", "admins"),
		p.click("dialog[open] .acts button"), p.see("admins"), p.gone("builders"),
		p.click(`a[href^="/keys/delete"]`), p.there("dialog[open] form"), p.see("cannot be undone"),
		p.picture("revoke"), p.click("dialog[open] button.d"), p.see("No API keys yet"),
		func() error {
			keys, err := p.root.Keys(p)
			if len(keys) > 0 {
				err = errors.Join(err, fmt.Errorf("%d keys are left", len(keys)))
			}
			return err
		},
	)
}

func usePermissionGroups(p *page) error {
	name := p.name() + " <b>x</b>"
	return steps(
		p.enter, p.toGuarded("/admin/ui"), p.see("No permission groups yet"), p.picture("none"),
		p.toGuarded("/permission-groups"), p.click(`a[href="/permission-groups/edit"]`),
		p.fill("#name", name), p.click(`input[name="controller"][value="list_vms"]`),
		p.click(`input[name="controller"][value="start_vm"]`), p.picture("rights"), p.click(".acts button"),
		p.at("/permission-groups"), p.see(name, "2 permissions", "0 permissions"), p.picture("list"),
		p.toGuarded("/admin/ui"), p.see(name),
		p.click(`a[href^="/permission-groups/edit?name"]`), p.there(`input[value="list_vms"]:checked`),
		p.click(`input[name="registry"]`), p.click(".acts button"), p.at("/permission-groups"), p.see("1 permission"),
		p.click(`a[href^="/permission-groups/delete"]`), p.there("dialog[open] form"),
		p.see("lose the permissions of this group"), p.click("dialog[open] button.d"),
		p.see("No permission groups yet"),
	)
}

// haveFewRights views pages with parts that a user who may only list instances and nodes may not
// see.
func haveFewRights(p *page) error {
	forbidden := func(path, permission string) func() error {
		return func() error {
			return steps(p.refusal(403), p.toGuarded(path),
				p.see("Action failed", permission, "Ask the administrator of this cloud", "Request"))
		}
	}
	return steps(
		p.visitsServices, p.grant("list_vms", "list_nodes"),
		func() error {
			p.services.idp.LogsIn("bob", map[string]any{"preferred_username": "bob", "groups": []string{p.name()}})
			return nil
		},
		p.toGuarded("/login?return=%2F"), p.click(`a[href^="/login/oidc"]`), p.at("/"),
		p.see("Registry storage", "Not shown", "permission"), p.picture("dashboard"),
		p.toGuarded("/instances"), p.see("No instances.", "Missing permissions: start_vm"),
		p.there(`button[disabled][title="You need the permission start_vm"]`), p.toGuarded("/nodes"),
		p.see("No nodes."), p.gone("that you may see"),
		p.toGuarded("/instances/start"), p.see("Templates cannot be listed"), p.picture("start"),
		p.toGuarded("/health"), p.see("Not checked"), p.toGuarded("/keys"), p.see("API keys are not shown"),
		p.toGuarded("/permission-groups"), p.see("Not shown: Controller"), p.picture("permissions"),
		forbidden("/templates", "registry_list"), p.picture("forbidden"), forbidden("/groups", "get_groups"),
		p.toGuarded("/pools"), p.see("No pools.", "Missing permissions: change_config"), p.picture("pools"),
		forbidden("/events", "view_logs"), forbidden("/logs", "view_logs"), p.toGuarded("/account"),
		p.see("bob", "identity provider", p.name(), "Session ends"), p.there(`#p-controller-list_vms .ok`),
		p.there(`#p-controller-start_vm .faint`), p.picture("account"), p.revoke, p.seeOwnPart,
	)
}

func seeNothing(p *page) error {
	join := "buildnode join " + p.guarded.Controller + " --token-file token"
	return steps(
		p.enter, p.toGuarded("/"), p.see("First steps", "Join a node", join), p.there(`[data-command="`+join+`"]`),
		p.picture("dashboard"),
		p.toGuarded("/nodes"), p.see("No nodes.", join), p.picture("nodes"), p.toGuarded("/instances"),
		p.see("No instances.", "Start instance"),
		p.toGuarded("/templates"), p.see("No templates.", "buildnode registry", "push"), p.picture("templates"),
		p.toGuarded("/groups"), p.see("No node groups yet", "Create group"),
		p.toGuarded("/pools"), p.see("No pools.", "buildyard pool create", "Create pool"), p.picture("pools"),
		p.toGuarded("/keys"), p.see("No API keys yet", "Create API key"), p.toGuarded("/permission-groups"),
		p.see("No permission groups yet"),
		p.toGuarded("/instances/start"), p.see("No templates"), p.toGuarded("/health"),
		p.holds(`/no problems|1 problem[^]*gi?b free/i.test(document.body.innerText)`), p.picture("health"),
	)
}
