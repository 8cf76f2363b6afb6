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

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

// entry is an item that an argument can select: by its ID, a unique prefix of it, or a name.
type entry struct {
	id    string
	names []string // aliases; "" is none
	about string   // description for completion
	past  bool     // it has ended: other items with its name take precedence
}

// kind is a kind of records that have IDs.
type kind struct {
	name  string
	shown string // by this command: buildyard ...
	list  func(ctx context.Context, c *client.Controller, o client.ListOptions) ([]entry, error)
	// narrow returns the parts of a long list that contain every item with a name; nil: the list is
	// short.
	narrow func(text string) []client.ListOptions
}

var (
	uuidForm  = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	beginning = regexp.MustCompile(`^[0-9a-fA-F-]{1,36}$`) // of an id
)

// find returns the ID of the item that an argument selects. A full ID is returned unchanged: whether it
// exists is checked by the call that uses it.
func (k kind) find(ctx context.Context, c *client.Controller, text string) (string, error) {
	if uuidForm.MatchString(text) {
		return strings.ToLower(text), nil
	}
	if text == "" {
		return "", cli.Usage(fmt.Errorf("%s ID is empty", k.name))
	}
	if len(text) > longestName {
		return "", k.missing(text)
	}
	parts := []client.ListOptions{{}}
	if k.narrow != nil {
		parts = k.narrow(text)
	}
	var list []entry
	for _, part := range parts {
		some, err := k.list(ctx, c, part)
		if err != nil {
			return "", err
		}
		list = append(list, some...)
	}
	return k.match(list, text)
}

// longestName bounds the names that are searched, in bytes.
const longestName = 1000

// quoted quotes a text so that it is literal in a filter.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// match looks for a full ID first, then for a name, then for a prefix of an ID.
func (k kind) match(list []entry, text string) (string, error) {
	tests := []func(entry) bool{
		func(e entry) bool { return e.id == text },
		func(e entry) bool { return slices.Contains(e.names, text) },
		func(e entry) bool { return strings.HasPrefix(e.id, strings.ToLower(text)) },
	}
	for _, test := range tests {
		var found, past []string
		seen := map[string]bool{}
		for _, e := range list {
			if !test(e) || seen[e.id] {
				continue
			}
			seen[e.id] = true
			if e.past {
				past = append(past, e.id)
			} else {
				found = append(found, e.id)
			}
		}
		if len(found) == 0 {
			found = past
		}
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			shown := strings.Join(found[:min(3, len(found))], ", ")
			return "", cli.Usage(fmt.Errorf("%d %ss match %q (%s): use a longer ID", len(found), k.name, text, shown))
		}
	}
	return "", k.missing(text)
}

// missing is the error about an item that does not exist.
func (k kind) missing(text string) error {
	return cli.Exit(cli.ExitNotFound, fmt.Errorf("%s %q not found; see \"buildyard %s\"", k.name, text, k.shown))
}

// named adds the requested item to the API's bare "not found".
func (k kind) named(err error, text string) error {
	if errors.Is(err, client.ErrNotFound) && !cli.WithExitCode(err) {
		return k.missing(text)
	}
	return err
}

// completionTime bounds a completion: a user who has pressed a key waits for it.
const completionTime = 2 * time.Second

// completions bounds the number of completed IDs.
const completions = 500

// complete completes IDs with descriptions for the first n arguments; n 0 is any number of them.
func (k kind) complete(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return k.offers(cmd, text), cobra.ShellCompDirectiveNoFileComp
	}
}

// offers returns the IDs and names that begin with a text, from the API.
func (k kind) offers(cmd *cobra.Command, text string) (out []string) {
	o := client.ListOptions{Limit: completions}
	if text != "" {
		o.Filter = quoted(text)
	}
	ctx, c, cancel, err := completing(cmd)
	if err != nil {
		return nil
	}
	defer cancel()
	list, err := k.list(ctx, c, o)
	if err != nil {
		return nil
	}
	for _, e := range list[:min(len(list), completions)] {
		name := e.names[0]
		if strings.HasPrefix(e.id, text) {
			out = append(out, e.id+"\t"+strings.TrimSpace(cli.Plain(name+" "+e.about)))
		}
		if name != "" && cli.Plain(name) == name && strings.HasPrefix(name, text) {
			out = append(out, name+"\t"+cli.Plain(k.name+" "+e.about))
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
	var a Command
	if err := a.open(src, client.NoRetries); err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	return ctx, a.API, cancel, nil
}

// completeFlag completes items for a flag.
func (k kind) completeFlag(cmd *cobra.Command, flag string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, k.complete(0))
}

// kindOf returns the kind whose records are listed by list and named by by.
func kindOf[T any](
	name, shown string, list func(*client.Controller, context.Context, client.ListOptions) ([]T, error),
	by func(T) entry,
) kind {
	return kind{
		name: name, shown: shown,
		list: func(ctx context.Context, c *client.Controller, o client.ListOptions) ([]entry, error) {
			all, err := list(c, ctx, o)
			out := make([]entry, len(all))
			for i, one := range all {
				out[i] = by(one)
			}
			return out, err
		},
	}
}

// The kinds.
var (
	instances = manyOf(kindOf("instance", "instance list",
		(*client.Controller).Instances, func(i api.InstanceItem) entry {
			return entry{
				id: i.InstanceID, names: []string{i.VM.Name, i.VM.ExternalID}, about: i.VM.InstanceState,
				past: i.VM.InstanceState == "Terminated",
			}
		}))
	nodes = kindOf("node", "node list", (*client.Controller).Nodes, func(n api.Node) entry {
		return entry{id: n.NodeID, names: []string{n.NodeName}, about: n.State}
	})
	templates = kindOf("template", "template list", (*client.Controller).Templates, func(t api.Template) entry {
		return entry{id: t.ID, names: []string{t.Name}, about: t.Arch}
	})
	groups = kindOf("group", "group list", (*client.Controller).Groups, func(g api.Group) entry {
		return entry{id: g.ID, names: []string{g.Name}, about: g.Description}
	})
	saves = kindOf("image", "image list", (*client.Controller).Saves, func(s api.SaveImage) entry {
		return entry{id: s.ID, names: []string{""}, about: s.Request.Tag + " " + s.Status}
	})
	distributions = kindOf("distribution", "template distributions",
		(*client.Controller).Distributions, func(d api.Distribution) entry {
			return entry{id: d.Request.RequestID, names: []string{""}, about: d.Request.Tag}
		})
	removals = kindOf("removal", "template removals", (*client.Controller).Removals, func(r api.Removal) entry {
		return entry{id: r.Request.RequestID, names: []string{""}}
	})
)

// manyOf returns a kind with very many records.
func manyOf(k kind) kind {
	k.narrow = func(text string) []client.ListOptions {
		parts := []client.ListOptions{{Filter: "name:" + quoted(text)}, {ExternalID: text}}
		if beginning.MatchString(text) {
			parts = append(parts, client.ListOptions{Filter: "id:" + text + "*"})
		}
		return parts
	}
	return k
}
