package rig

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

// NodeOptions are how this machine becomes a node.
type NodeOptions struct {
	Name     string
	Capacity int
	Driver   string
	Host     string // address of its VMs; "" = loopback
	LogLevel string // "" = the program's own
	Reserve  string // space that it leaves free of templates; "" = 1GB

	// Launcher is a program with arguments that makes itself the agent, whose command line follows: it changes what the
	// agent sees of this machine. Empty: the agent is started directly.
	Launcher []string
	Settings map[string]string // environment of the agent
	Args     []string          // more arguments of the agent
}

// reserve is what a node leaves free of templates by default: the disk of a machine where tests run may be fuller than
// a node's, and what they write is little.
const reserve = "1GB"

// Join makes this machine a node of the cloud once more, with a data directory of its
// own that has the node's name, and starts the agent.
func (c *Cloud) Join(ctx context.Context, o NodeOptions) (*Process, error) {
	token, err := c.Token(ctx)
	if err != nil {
		return nil, err
	}
	program, data := c.programs.Path("buildnode"), filepath.Join(c.Dir, o.Name)
	_, err = Output(ctx, "", program, "join", c.Controller, "--token", token, "--name", o.Name,
		"--host", cmp.Or(o.Host, loopback), "--capacity", strconv.Itoa(o.Capacity), "--data-dir", data,
		"--reserve-space", cmp.Or(o.Reserve, reserve))
	if err != nil {
		return nil, err
	}
	args := []string{"run", "--driver", o.Driver, "--data-dir", data}
	if o.LogLevel != "" {
		args = append(args, "--log-level", o.LogLevel)
	}
	command := slices.Concat(o.Launcher, []string{program}, args, o.Args)
	p := NewProcess(c.Dir, o.Name, command[0], command[1:]...)
	p.Set(o.Settings)
	return p, p.Start()
}

// Push makes a local template with the vm command and pushes it as tag v1, as the owner of a node
// does. It returns the template's ID.
func (c *Cloud) Push(ctx context.Context, name string, vm ...string) (id string, err error) {
	program, home := c.programs.Path("buildnode"), []string{"--data-dir", filepath.Join(c.Dir, "author-"+name)}
	if _, err := Output(ctx, "", program, slices.Concat([]string{"vm"}, vm, home)...); err != nil {
		return "", err
	}
	raw, err := Output(ctx, "", program, append([]string{"vm", "list", "--output", "json"}, home...)...)
	if err != nil {
		return "", err
	}
	var list []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(raw), &list); err != nil || len(list) != 1 || list[0].ID == "" {
		return "", fmt.Errorf("the local templates are %q: one with an id was expected", raw)
	}
	_, err = Output(ctx, "", program,
		slices.Concat([]string{"registry", "--remote", c.Registry, "push", list[0].ID, "--tag", "v1"}, home,
			c.RegistryOptions)...)
	return list[0].ID, err
}

// PushGuest puts the demo guest into the registry: one virtual CPU, 256 MB.
func (c *Cloud) PushGuest(ctx context.Context, disk string) (id string, err error) {
	return c.Push(ctx, "guest", "import", disk, "--name", "guest", "--cpu", "1", "--ram", "256M")
}
