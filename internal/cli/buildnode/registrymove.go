package buildnode

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/library"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/transfer"
)

// PushOptions are the options of registry push.
type PushOptions struct {
	*registryOptions
	VM          string
	Tag         string
	Description string
	Existing    string
}

func registryPush(r *registryOptions) *cobra.Command {
	o := PushOptions{registryOptions: r}
	cmd := &cobra.Command{
		Use:   "push <vm>",
		Short: "Push a local template as a new tag",
		Long: `push publishes a local template as a new tag of the registry's template with the same id,
which is made by the first push. With -v the tag goes to another, existing template.
A push that was interrupted goes on when the same command is given again.`,
		Example: `  buildnode registry push debian -t v1 -d "first"
  buildnode registry push patched -v debian -t v2`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.VM = args[0]
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&o.Tag, "tag", "t", "", "tag of the new version")
	cmd.Flags().StringVarP(&o.Description, "description", "d", "", "description of the new version")
	cmd.Flags().StringVarP(&o.Existing, "vm", "v", "", "template of the registry (name or id) that gets the tag")
	_ = cmd.MarkFlagRequired("tag")
	return cmd
}

func (o *PushOptions) run(ctx context.Context) error {
	if o.Tag == "" {
		return cli.Usage(errors.New("--tag is empty"))
	}
	client, err := o.client(tryTransfer)
	if err != nil {
		return err
	}
	defer client.Close()
	l, vm, err := o.find(o.VM)
	if err != nil {
		return err
	}
	push := library.PushOptions{Tag: o.Tag, Description: o.Description}
	if o.Existing != "" {
		target, err := template(ctx, client, o.Existing)
		if err != nil {
			return err
		}
		push.Existing = target.ID
	}
	b := newBar(o.Err, "push "+cli.Plain(vm.Name))
	push.Progress = func(p transfer.Progress) { b.update(p.Done, p.Total) }
	result, err := l.Push(ctx, client, vm.ID, push)
	b.end()
	if err != nil {
		return resumable(ctx, err)
	}
	return o.pushed(result)
}

// pushed says what a push has made.
func (o *registryOptions) pushed(r api.PushResult) error {
	_, err := fmt.Fprintf(o.Out, "pushed %s %s as version %d (%s)\n", cli.Plain(r.Name), cli.Plain(r.Tag), r.Number, r.ID)
	return err
}

// PullOptions are the options of registry pull.
type PullOptions struct {
	*registryOptions
	Template string
	Tag      string
	Shrink   bool
}

func registryPull(r *registryOptions) *cobra.Command {
	o := PullOptions{registryOptions: r}
	cmd := &cobra.Command{
		Use:   "pull <template>",
		Short: "Pull a template of the registry into the local templates",
		Long: `pull brings a tag (the latest one unless -t names another) and makes it the current
version of the local template. A pull that was interrupted goes on when the same command
is given again. Files of newer tags stay when an older one is pulled, unless -s is given.`,
		Example: `  buildnode registry pull debian
  buildnode registry pull debian -t v1 -s`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Template = args[0]
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&o.Tag, "tag", "t", "", "tag to pull (default: the latest)")
	cmd.Flags().BoolVarP(&o.Shrink, "shrink", "s", false, "remove local files of newer tags")
	return cmd
}

func (o *PullOptions) run(ctx context.Context) error {
	client, err := o.client(tryTransfer)
	if err != nil {
		return err
	}
	defer client.Close()
	l, err := o.library()
	if err != nil {
		return err
	}
	t, err := template(ctx, client, o.Template)
	if err != nil {
		return err
	}
	b := newBar(o.Err, "pull "+cli.Plain(t.Name))
	vm, err := l.Pull(ctx, client, library.PullOptions{
		Ref: transfer.Ref{ID: t.ID, Tag: o.Tag}, Shrink: o.Shrink,
		Progress: func(p transfer.Progress) { b.update(p.Done, p.Total) },
	})
	b.end()
	if err != nil {
		return resumable(ctx, err)
	}
	_, err = fmt.Fprintf(o.Out, "pulled %s %s (%s)\n", cli.Plain(vm.Name), cli.Plain(vm.Tag), vm.ID)
	return err
}

// resumable says how to go on after an interruption.
func resumable(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return errors.New("interrupted; the same command goes on where it was")
}
