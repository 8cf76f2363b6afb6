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

// selectable is an item that an argument can select: by its ID, a unique prefix of it, or a name.
type selectable struct {
	id          string
	names       []string // aliases; "" is none
	description string   // description for completion
	ended       bool     // it has ended: other items with its name take precedence
}

// recordKind is a kind of records that have IDs.
type recordKind struct {
	name        string
	listCommand string // by this command: buildyard ...
	list        func(ctx context.Context, c *client.Controller, o client.ListOptions) ([]selectable, error)
	// filterFor returns the parts of a long list that contain every item with a name; nil: the list is
	// short.
	filterFor func(text string) []client.ListOptions
}

var (
	uuidForm  = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	beginning = regexp.MustCompile(`^[0-9a-fA-F-]{1,36}$`) // of an id
)

// find returns the ID of the item that an argument selects. A full ID is returned unchanged: whether it
// exists is checked by the call that uses it.
func (k recordKind) find(ctx context.Context, c *client.Controller, text string) (string, error) {
	if uuidForm.MatchString(text) {
		return strings.ToLower(text), nil
	}
	if text == "" {
		return "", cli.Usage(fmt.Errorf("%s ID is empty", k.name))
	}
	if len(text) > maxNameBytes {
		return "", k.notFoundError(text)
	}
	parts := []client.ListOptions{{}}
	if k.filterFor != nil {
		parts = k.filterFor(text)
	}
	var list []selectable
	for _, part := range parts {
		some, err := k.list(ctx, c, part)
		if err != nil {
			return "", err
		}
		list = append(list, some...)
	}
	return k.matchEntry(list, text)
}

// maxNameBytes bounds the names that are searched, in bytes.
const maxNameBytes = 1000

// quoteLiteral quotes a text so that it is literal in a filter.
func quoteLiteral(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// matchEntry looks for a full ID first, then for a name, then for a prefix of an ID.
func (k recordKind) matchEntry(list []selectable, text string) (string, error) {
	tests := []func(selectable) bool{
		func(e selectable) bool { return e.id == text },
		func(e selectable) bool { return slices.Contains(e.names, text) },
		func(e selectable) bool { return strings.HasPrefix(e.id, strings.ToLower(text)) },
	}
	for _, test := range tests {
		var found, past []string
		seen := map[string]bool{}
		for _, e := range list {
			if !test(e) || seen[e.id] {
				continue
			}
			seen[e.id] = true
			if e.ended {
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
	return "", k.notFoundError(text)
}

// notFoundError is the error about an item that does not exist.
func (k recordKind) notFoundError(text string) error {
	return cli.Exit(cli.ExitNotFound, fmt.Errorf("%s %q not found; see \"buildyard %s\"", k.name, text, k.listCommand))
}

// nameNotFound adds the requested item to the API's bare "not found".
func (k recordKind) nameNotFound(err error, text string) error {
	if errors.Is(err, client.ErrNotFound) && !cli.HasExitCode(err) {
		return k.notFoundError(text)
	}
	return err
}

// nameTemplate adds the template to the API's error about a version that it does not have.
func nameTemplate(err error, template string) error {
	if !errors.Is(err, client.ErrNoVersion) {
		return err
	}
	return cli.Exit(cli.ExitNotFound,
		fmt.Errorf("%w of template %s; see \"buildyard template show %s\"", err, template, template))
}

// completionTimeout bounds a completion: a user who has pressed a key waits for it.
const completionTimeout = 2 * time.Second

// maxCompletions bounds the number of completed IDs.
const maxCompletions = 500

// completeArgs completes IDs with descriptions for the first n arguments; n 0 is any number of them.
func (k recordKind) completeArgs(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return k.completionsFor(cmd, text), cobra.ShellCompDirectiveNoFileComp
	}
}

// completionsFor returns the IDs and names that begin with a text, from the API.
func (k recordKind) completionsFor(cmd *cobra.Command, text string) (out []string) {
	ctx, c, cancel, err := openForCompletion(cmd)
	if err != nil {
		return nil
	}
	defer cancel()
	var list []selectable
	for _, f := range completionFilters(text) {
		part, err := k.list(ctx, c, client.ListOptions{Limit: maxCompletions, Filter: f})
		if err != nil {
			return nil
		}
		list = append(list, part...)
	}
	for _, e := range list[:min(len(list), maxCompletions)] {
		name := e.names[0]
		if strings.HasPrefix(e.id, text) {
			out = append(out, e.id+"\t"+strings.TrimSpace(cli.EscapeName(name+" "+e.description)))
		}
		if name != "" && cli.EscapeName(name) == name && strings.HasPrefix(name, text) {
			out = append(out, name+"\t"+cli.EscapeName(k.name+" "+e.description))
		}
	}
	return out
}

// completionFilters returns the filters of the lists of what begins with a text.
func completionFilters(text string) []string {
	switch {
	case text == "":
		return []string{""}
	case strings.ContainsAny(text, " \t\r\n,\"*\\"): // only a whole value can have them, or a word
		return []string{quoteLiteral(text)}
	case strings.Trim(strings.ToLower(text), "0123456789abcdef-") != "": // not an ID
		return []string{"name:" + text + "*"}
	}
	return []string{"name:" + text + "*", "id:" + text + "* -name:" + text + "*"}
}

// openForCompletion opens the API for a completion.
func openForCompletion(cmd *cobra.Command) (context.Context, *client.Controller, context.CancelFunc, error) {
	src, err := settingSources(cmd)
	if err != nil {
		return nil, nil, nil, err
	}
	var a Command
	if err := a.openClient(src, client.NoRetries); err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	return ctx, a.API, cancel, nil
}

// completeFlag completes items for a flag.
func (k recordKind) completeFlag(cmd *cobra.Command, flag string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, k.completeArgs(0))
}

// newKind returns the kind whose records are listed by list and named by by.
func newKind[T any](
	name, shown string, list func(*client.Controller, context.Context, client.ListOptions) ([]T, error),
	by func(T) selectable,
) recordKind {
	return recordKind{
		name: name, listCommand: shown,
		list: func(ctx context.Context, c *client.Controller, o client.ListOptions) ([]selectable, error) {
			all, err := list(c, ctx, o)
			out := make([]selectable, len(all))
			for i, one := range all {
				out[i] = by(one)
			}
			return out, err
		},
	}
}

// The kinds.
var (
	instances = withFilter(newKind("instance", "instance list",
		(*client.Controller).Instances, func(i api.InstanceItem) selectable {
			return selectable{
				id: i.InstanceID, names: []string{i.VM.Name, i.VM.ExternalID}, description: i.VM.InstanceState,
				ended: i.VM.InstanceState == "Terminated",
			}
		}))
	nodes = newKind("node", "node list", (*client.Controller).Nodes, func(n api.Node) selectable {
		return selectable{id: n.NodeID, names: []string{n.NodeName}, description: n.State}
	})
	templates = newKind("template", "template list", (*client.Controller).Templates, func(t api.Template) selectable {
		return selectable{id: t.ID, names: []string{t.Name}, description: t.Arch}
	})
	groups = newKind("group", "group list", (*client.Controller).Groups, func(g api.Group) selectable {
		return selectable{id: g.ID, names: []string{g.Name}, description: g.Description}
	})
	pools = newKind("pool", "pool list", (*client.Controller).Pools, func(p api.Pool) selectable {
		return selectable{id: p.ID, names: []string{p.Name}, description: templateTag(p.TemplateName, p.Tag)}
	})
	saves = newKind("image", "image list", (*client.Controller).Saves, func(s api.SaveImage) selectable {
		return selectable{id: s.ID, names: []string{""}, description: s.Request.Tag + " " + s.Status}
	})
	distributions = newKind("distribution", "template distributions",
		(*client.Controller).Distributions, func(d api.Distribution) selectable {
			return selectable{id: d.Request.RequestID, names: []string{""}, description: d.Request.Tag}
		})
	removals = newKind("removal", "template evictions", (*client.Controller).Removals, func(r api.Removal) selectable {
		return selectable{id: r.Request.RequestID, names: []string{""}}
	})
)

// withFilter returns a kind with very many records.
func withFilter(k recordKind) recordKind {
	k.filterFor = func(text string) []client.ListOptions {
		parts := []client.ListOptions{{Filter: "name:" + quoteLiteral(text)}, {ExternalID: text}}
		if beginning.MatchString(text) {
			parts = append(parts, client.ListOptions{Filter: "id:" + text + "*"})
		}
		return parts
	}
	return k
}
