package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// authorCases kill the commands of a template's author.
var authorCases = []testCase{
	{"importing, command", killedImport},
	{"pushing, command", killedPush},
}

// author makes templates, in a data directory.
type author struct {
	*caseRun
	data string
}

func (a *caseRun) author(name string) author { return author{a, filepath.Join(a.dir, "author-"+name)} }

// command prepares a command of buildnode.
func (w author) command(args ...string) *rig.Process {
	return rig.NewProcess(w.dir, "author", w.Path("buildnode"), append(args, "--data-dir", w.data)...)
}

// output runs a command of buildnode to its end.
func (w author) output(ctx context.Context, args ...string) (string, error) {
	return rig.Output(ctx, "", w.Path("buildnode"), append(args, "--data-dir", w.data)...)
}

// library returns the names in the directory of the author's templates.
func (w author) library() (names []string) {
	entries, _ := os.ReadDir(filepath.Join(w.data, "library")) // the first command makes it
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// importTries bounds the imports that may end before they are killed.
const importTries = 20

// killedImport: an import that is killed leaves no template, and the next command removes what it has made.
func killedImport(ctx context.Context, a *caseRun) error {
	w := a.author("killed")
	for range importTries {
		p := w.command(append([]string{"vm"}, a.importArgs("killed")...)...)
		if err := p.Start(); err != nil {
			return err
		}
		before := len(w.library())
		err := await(ctx, "the import", func() (bool, error) { return len(w.library()) > before || !p.Running(), nil })
		if err != nil {
			return err
		}
		_ = p.Kill() // it may have ended
		if p.Killed() && slices.ContainsFunc(w.library(), isUnfinished) {
			a.note("killed an import that had made %q", w.library())
			return w.checkImport(ctx)
		}
	}
	return fmt.Errorf("%d imports ended before they could be killed", importTries)
}

// isUnfinished reports whether a name in the library is not that of a template, which is a UUID.
func isUnfinished(name string) bool { return strings.HasPrefix(name, ".") }

// checkImport imports once more and checks that there is nothing else.
func (w author) checkImport(ctx context.Context) error {
	if _, err := w.output(ctx, append([]string{"vm"}, w.importArgs("again")...)...); err != nil {
		return err
	}
	list, err := w.output(ctx, "vm", "list")
	w.check(err == nil && strings.Contains(list, "again"), "the next import makes a template")
	w.check(!slices.ContainsFunc(w.library(), isUnfinished), "nothing unfinished is left: %q", w.library())
	return nil
}

// killedPush: a push that is killed publishes nothing, and the next push completes it.
func killedPush(ctx context.Context, a *caseRun) error {
	a.traffic.Lock()
	defer a.traffic.Unlock()
	defer a.registry.open()
	w := a.author("pushing")
	if _, err := w.output(ctx, append([]string{"vm"}, a.importArgs("pushing")...)...); err != nil {
		return err
	}
	push := []string{"registry", "--remote", a.registry.address(), "push", "pushing", "--tag", "v1"}
	p := w.command(push...)
	a.registry.shutAfter(slowTraffic)
	if err := p.Start(); err != nil {
		return err
	}
	err := await(ctx, "the push to be stopped", func() (bool, error) { return a.registry.isShut(), nil })
	if err = errors.Join(err, p.Kill()); err != nil {
		return err
	}
	a.registry.open()
	a.note("killed a push after %d bytes", slowTraffic)
	id, err := a.templateNamed(ctx, "pushing")
	a.check(err == nil && id == "", "no template is published: %q, %v", id, err)
	if _, err := w.output(ctx, push...); err != nil {
		return err
	}
	if a.template, err = a.templateNamed(ctx, "pushing"); err != nil {
		return err
	}
	return errors.Join(a.works(ctx, client.StartRequest{TemplateID: a.template}), a.mac.clean(ctx))
}

// templateNamed returns the ID of a template with versions; "" if there is none.
func (x *site) templateNamed(ctx context.Context, name string) (string, error) {
	templates, err := x.api.Templates(ctx, client.ListOptions{})
	i := slices.IndexFunc(templates, func(t api.Template) bool { return t.Name == name })
	if err != nil || i < 0 {
		return "", err
	}
	return templates[i].ID, nil
}
