package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// limitedCloud is a cloud where rights on single nodes and templates are enforced. It has two nodes and two templates,
// and a visitor with an API key who has rights on one of each, and an instance on both nodes.
type limitedCloud struct {
	*specialCloud
	shelf           *client.Registry   // as root
	visitor         *client.Controller // calls the API as the visitor
	key             string             // their private key
	seen, hidden    api.Node
	template, spare string
	instances       []string
}

const (
	limitedName = "eve"      // of the visitor's key, and of their permission group
	starters    = "builders" // the permission group that instances are started for
)

// newLimitedCloud starts a limited cloud.
func (p *page) newLimitedCloud() (c *limitedCloud, err error) {
	c = &limitedCloud{specialCloud: &specialCloud{}}
	c.Cloud, err = p.cloud(p, filepath.Join(p.stage.dir, p.name()+"-limited"), map[string]string{
		"SVC_ENABLE_AUTH": "true", "SVC_ENABLE_API_KEYS": "true", "SVC_ENABLE_CONTROLLER_AUTHORIZATION": "true",
		"SVC_ENABLE_REGISTRY_AUTHORIZATION": "true", "SVC_ENABLE_RESOURCE_MANAGEMENT": "true",
		"SVC_ROOT_TOKEN": rootToken,
	})
	if err != nil {
		return c, err
	}
	p.own = c.specialCloud
	root := client.Options{Credentials: client.RootToken(rootToken)}
	if c.api, err = client.NewController(c.Controller, root); err != nil {
		return c, err
	}
	if c.shelf, err = client.NewRegistry(c.Registry, root); err != nil {
		return c, err
	}
	return c, steps(
		func() error { return c.furnish(p) },
		func() error { return c.grant(p) },
		func() error { return c.run(p) },
		func() error { return c.admit(p) },
	)
}

// furnish adds templates and nodes.
func (c *limitedCloud) furnish(p *page) (err error) {
	token := filepath.Join(c.Dir, "root-token")
	if err := os.WriteFile(token, []byte(rootToken), 0o600); err != nil {
		return err
	}
	c.RegistryOptions = []string{"--token-file", token}
	for name, id := range map[string]*string{"common": &c.template, "spare": &c.spare} {
		*id, err = c.Push(p, name, "create", "--name", name, "--disk-size", "16M", "--cpu", "1", "--ram", "256M")
		if err != nil {
			return err
		}
	}
	if err := p.fleet(p, c.Cloud, "pair", "--nodes", "2", "--capacity", "4"); err != nil {
		return err
	}
	return p.await(p, "two nodes", func() (bool, error) {
		list, err := c.api.Nodes(p, client.ListOptions{Filter: "state:active"})
		if len(list) == 2 {
			c.seen, c.hidden = list[0], list[1]
		}
		return len(list) == 2, err
	})
}

// run starts an instance on each node.
func (c *limitedCloud) run(p *page) error {
	for _, n := range []api.Node{c.seen, c.hidden} {
		ids, err := c.api.Start(p, client.StartRequest{
			TemplateID: c.template, Name: "on-" + n.NodeName, NodeID: n.NodeID, Group: starters,
		})
		if err != nil {
			return err
		}
		c.instances = append(c.instances, ids...)
	}
	return nil
}

// grant adds the permissions and rights of the groups.
func (c *limitedCloud) grant(p *page) error {
	start := []string{"list", "create_instance"}
	return errors.Join(
		c.api.SetPermissionGroup(p, api.PermissionGroup{Name: starters, Permissions: []string{"start_vm"}}),
		c.api.SetResources(p, starters, []api.Resource{
			{ID: c.seen.NodeID, Type: "node", Permissions: start}, {ID: c.hidden.NodeID, Type: "node", Permissions: start},
		}),
		c.shelf.SetPermissionGroup(p, api.PermissionGroup{Name: starters, Permissions: []string{"list_vms", "pull_vm"}}),
		c.shelf.SetResources(p, starters,
			[]api.Resource{{ID: c.template, Type: "template", Permissions: []string{"list", "pull"}}}),
		c.api.SetPermissionGroup(p, api.PermissionGroup{
			Name: limitedName, Permissions: []string{"list_vms", "list_nodes", "registry_list", "view_logs"},
		}),
		c.api.SetResources(p, limitedName,
			[]api.Resource{{ID: c.seen.NodeID, Type: "node", Permissions: []string{"list"}}}),
		c.shelf.SetPermissionGroup(p, api.PermissionGroup{Name: limitedName, Permissions: []string{"list_vms"}}),
		c.shelf.SetResources(p, limitedName,
			[]api.Resource{{ID: c.template, Type: "template", Permissions: []string{"list"}}}),
	)
}

// admit makes the visitor's key, and waits until their instances run.
func (c *limitedCloud) admit(p *page) error {
	private, err := c.api.CreateKey(p, api.NewKey{ID: limitedName, TTL: 3600, Groups: []string{limitedName}})
	if err != nil {
		return err
	}
	c.key = private.Reveal()
	key, err := client.ParseAPIKey(limitedName, c.key)
	if err != nil {
		return err
	}
	if c.visitor, err = client.NewController(c.Controller, client.Options{Credentials: key}); err != nil {
		return err
	}
	return p.await(p, "the instances", func() (bool, error) {
		list, err := c.visitor.Instances(p, client.ListOptions{Filter: "state:started"})
		return len(list) == len(c.instances), err
	})
}

// rows checks that the rows of a list of the page are those with some IDs.
func (p *page) rows(prefix string, ids []string) func() error {
	var want strings.Builder
	want.WriteString("[]")
	for _, id := range ids {
		fmt.Fprintf(&want, ".concat(%q)", prefix+id)
	}
	return p.holds(fmt.Sprintf(
		`[...document.querySelectorAll("main tbody[data-rows] tr[id]")].map((e) => e.id).sort().join() === %s.sort().join()`,
		want.String()))
}

// seeOwnPart views a cloud as a visitor with rights on one of two nodes and on one of two templates: each number and row
// is what the visitor's own calls of the API return.
func (p *page) seeOwnPart() (err error) {
	c, err := p.newLimitedCloud()
	if c.Cloud != nil {
		defer func() { err = errors.Join(err, c.End()) }()
	}
	if err != nil {
		return err
	}
	nodes, err := c.visitor.Nodes(p, client.ListOptions{})
	if err != nil || len(nodes) != 1 || nodes[0].NodeID != c.seen.NodeID {
		return errors.Join(fmt.Errorf("the visitor may see %d nodes of the API", len(nodes)), err)
	}
	templates, err := c.visitor.Templates(p, client.ListOptions{})
	if err != nil || len(templates) != 1 || templates[0].ID != c.template {
		return errors.Join(fmt.Errorf("the visitor may see %d templates of the API", len(templates)), err)
	}
	instances, err := c.visitor.Instances(p, client.ListOptions{})
	if err != nil {
		return err
	}
	ids := make([]string, len(instances))
	for i, inst := range instances {
		ids[i] = inst.InstanceID
	}
	stats, err := c.visitor.Stats(p)
	if err != nil {
		return err
	}
	to := func(path string) func() error { return p.toCloud(c.specialCloud, path) }
	return steps(
		to("/login?return=%2Fnodes"), p.there("#key-login:not([hidden])"), p.fill("#key-id", limitedName),
		p.script(fmt.Sprintf(`document.getElementById("key-text").value = %q`, c.key)), p.click("#key-login button"),
		p.at("/nodes"), p.rows("n-", []string{c.seen.NodeID}), p.see(c.seen.NodeName), p.gone(c.hidden.NodeName),
		p.picture("own-nodes"), to("/nodes?q=name:"+c.hidden.NodeName), p.see("No matching nodes that you may see."),
		to("/nodes/"+c.seen.NodeID), p.there("h1"), p.see(c.seen.NodeName, "You need the permission", "on-"+c.seen.NodeName),
		p.holds(fmt.Sprintf(`document.querySelectorAll("#slots tbody tr:has(.name a)").length === %d`,
			nodes[0].VMCount)),
		to("/templates"), p.rows("t-", []string{c.template}), p.see("common"), p.gone("spare"),
		to("/templates/"+c.template), p.see("Cached on", c.seen.NodeName), p.gone(c.hidden.NodeName),
		p.picture("own-template"), to("/instances"), p.rows("i-", ids), p.gone("that you may see"),
		to("/search?q=spare"), p.see("Nothing that you may see matches."),
		to("/usage"), p.see("Not shown: You need the permission get_groups"), to("/"),
		p.see("Capacity by group: You need the permission get_groups"),
		p.holds(fmt.Sprintf(`document.querySelector("#areas a[href='/instances'] b").textContent.trim() === "%d"`,
			len(ids))),
		p.holds(fmt.Sprintf(`document.querySelector("#areas a[href='/nodes'] b").textContent.trim() === "%d"`,
			stats.Nodes["Active"])),
		to("/account"), p.see(limitedName, "API key", "Rights on single nodes and templates are enforced"),
		p.picture("own-account"), p.refusal(404), to("/nodes/"+c.hidden.NodeID), p.see("Not found"),
		p.refusal(404), to("/templates/"+c.spare), p.see("Not found"),
	)
}
