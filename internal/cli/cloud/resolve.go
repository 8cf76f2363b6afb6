package cloud

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

// entry is something that a user can mean: by its id, the unique beginning of it, or a
// name.
type entry struct {
	id    string
	names []string // that it goes by; "" is none
	about string   // a few words for completion
}

// kind is a kind of things that have ids.
type kind struct {
	name  string
	shown string // by this command
	list  func(ctx context.Context, c *client.Controller, o client.ListOptions) ([]entry, error)
}

var uuidForm = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// find gives the id of what a user means. A whole id is taken as it is: whether it is
// there is said by what is asked of it.
func (k kind) find(ctx context.Context, c *client.Controller, text string) (string, error) {
	if uuidForm.MatchString(text) {
		return strings.ToLower(text), nil
	}
	list, err := k.list(ctx, c, client.ListOptions{})
	if err != nil {
		return "", err
	}
	return k.match(list, text)
}

// match looks for a whole id first, then for a name, then for the beginning of an id.
func (k kind) match(list []entry, text string) (string, error) {
	if text == "" {
		return "", cli.Usage(fmt.Errorf("the %s has an empty id", k.name))
	}
	tests := []func(entry) bool{
		func(e entry) bool { return e.id == text },
		func(e entry) bool { return slices.Contains(e.names, text) },
		func(e entry) bool { return strings.HasPrefix(e.id, strings.ToLower(text)) },
	}
	for _, test := range tests {
		var found []string
		for _, e := range list {
			if test(e) {
				found = append(found, e.id)
			}
		}
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			shown := strings.Join(found[:min(3, len(found))], ", ")
			return "", cli.Usage(fmt.Errorf("%d %ss go by %q (%s): give more of an id", len(found), k.name, text, shown))
		}
	}
	return "", k.missing(text)
}

// missing is the error for something that is not there.
func (k kind) missing(text string) error {
	return cli.Exit(cli.ExitNotFound, fmt.Errorf("there is no %s %q: \"buildyard %s\" shows them", k.name, text, k.shown))
}

// named puts what was asked about to the API's bare answer that it is not there.
func (k kind) named(err error, text string) error {
	if errors.Is(err, client.ErrNotFound) && !cli.Coded(err) {
		return k.missing(text)
	}
	return err
}

// completionTime bounds what a completion may take: somebody has pressed a key.
const completionTime = 2 * time.Second

// completions bounds how many ids are offered.
const completions = 500

// complete offers ids, and what they are the ids of, for the first n arguments; n 0 is any
// number of them.
func (k kind) complete(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return k.offers(cmd), cobra.ShellCompDirectiveNoFileComp
	}
}

// offers gives the ids and names that there are, from the API.
func (k kind) offers(cmd *cobra.Command) (out []string) {
	ctx, c, cancel, err := completing(cmd)
	if err != nil {
		return nil
	}
	defer cancel()
	list, err := k.list(ctx, c, client.ListOptions{Limit: completions})
	if err != nil {
		return nil
	}
	for _, e := range list[:min(len(list), completions)] {
		about := cli.Plain(strings.Join(append([]string{e.names[0]}, e.about), " "))
		out = append(out, e.id+"\t"+strings.TrimSpace(about))
		if name := e.names[0]; name != "" && !strings.ContainsAny(name, "\t\n") {
			out = append(out, cli.Plain(name)+"\t"+k.name+" "+e.about)
		}
	}
	return out
}

// completing opens the API for a completion.
func completing(cmd *cobra.Command) (context.Context, *client.Controller, context.CancelFunc, error) {
	src, err := sources(cmd)
	if err != nil {
		return nil, nil, nil, err
	}
	var a Asker
	if err := a.open(src, client.NoRetries); err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	return ctx, a.API, cancel, nil
}

// completeFlag offers things for a flag.
func (k kind) completeFlag(cmd *cobra.Command, flag string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, k.complete(0))
}

// The kinds.
var (
	instances = kind{"instance", "instance list", func(ctx context.Context, c *client.Controller, o client.ListOptions) (out []entry, err error) {
		list, err := c.Instances(ctx, o)
		for _, i := range list {
			out = append(out, entry{i.InstanceID, []string{i.VM.Name, i.VM.ExternalID}, i.VM.InstanceState})
		}
		return out, err
	}}
	nodes = kind{"node", "node list", func(ctx context.Context, c *client.Controller, _ client.ListOptions) (out []entry, err error) {
		list, err := c.Nodes(ctx, client.ListOptions{})
		for _, n := range list {
			out = append(out, entry{n.NodeID, []string{n.NodeName}, n.State})
		}
		return out, err
	}}
	templates = kind{"template", "template list", func(ctx context.Context, c *client.Controller, _ client.ListOptions) (out []entry, err error) {
		list, err := c.Templates(ctx, client.ListOptions{})
		for _, t := range list {
			out = append(out, entry{t.ID, []string{t.Name}, t.Arch})
		}
		return out, err
	}}
	saves = kind{"image", "image list", func(ctx context.Context, c *client.Controller, o client.ListOptions) (out []entry, err error) {
		list, err := c.Saves(ctx, o)
		for _, s := range list {
			out = append(out, entry{s.ID, []string{""}, s.Request.Tag + " " + s.Status})
		}
		return out, err
	}}
)

var groups = kind{"group", "group list", func(ctx context.Context, c *client.Controller, _ client.ListOptions) (out []entry, err error) {
	list, err := c.Groups(ctx, client.ListOptions{})
	for _, g := range list {
		out = append(out, entry{g.ID, []string{g.Name}, g.Description})
	}
	return out, err
}}
