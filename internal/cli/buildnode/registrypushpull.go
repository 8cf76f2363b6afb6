package buildnode

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/localtemplate"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/transfer"
)

// PushOptions are the options of registry push.
type PushOptions struct {
	*registryOptions
	tagFlags
	VM string
}

func registryPush(r *registryOptions) *cobra.Command {
	o := PushOptions{registryOptions: r}
	cmd := &cobra.Command{
		Use:   "push <vm>",
		Short: "Push a local template as a new tag",
		Long: `push publishes a local template as a new tag of the registry's template with the same ID, which the first
push creates. With -v it becomes a tag of another, existing template. Of a disk that was pushed or
pulled before, only the changes are sent. Repeating the command resumes an interrupted push. The
disk must not change during the push.`,
		Example: `  buildnode registry push debian -t v1 -d "first"
  buildnode registry push patched -v debian -t v2`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.VM = args[0]
			return o.run(cmd.Context())
		},
	}
	o.tagFlags.add(cmd)
	return cmd
}

func (o *PushOptions) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	client, err := o.client(ctx, tryTransfer)
	if err != nil {
		return err
	}
	defer client.Close()
	l, vm, err := o.findLocalTemplate(o.VM)
	if err != nil {
		return err
	}
	push, _, err := o.options(ctx, client)
	if err != nil {
		return err
	}
	shown := &stageBars{w: o.Err}
	push.PushProgress, push.HashProgress = shown.bytes("push "+cli.EscapeName(vm.Name)),
		shown.bytes("remember "+cli.EscapeName(vm.Name))
	result, err := l.Push(ctx, client, vm.ID, push)
	shown.end()
	if err != nil {
		return explainResume(ctx, err)
	}
	return o.printPush(result)
}

// printPush prints the result of a push.
func (o *registryOptions) printPush(r api.PushResult) error {
	_, err := fmt.Fprintf(o.Out, "pushed %s %s as version %d (%s)\n", cli.EscapeName(r.Name), cli.EscapeName(r.Tag),
		r.Number,
		r.ID)
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
		Short: "Pull a registry template",
		Long: `pull downloads a tag (default: the latest) and makes it the current version of the local template. Of a
disk that exists here in another version, only the differences are pulled. Repeating the command
resumes an interrupted pull. Local files of newer tags stay when an older tag is pulled, unless -s
is set.`,
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
	client, err := o.client(ctx, tryTransfer)
	if err != nil {
		return err
	}
	defer client.Close()
	l, err := o.localTemplates()
	if err != nil {
		return err
	}
	t, err := findTemplate(ctx, client, o.Template)
	if err != nil {
		return err
	}
	shown := &stageBars{w: o.Err}
	vm, err := l.Pull(ctx, client, localtemplate.PullOptions{
		Ref: transfer.VersionRef{ID: t.ID, Tag: o.Tag}, Shrink: o.Shrink,
		PullProgress:     shown.bytes("pull " + cli.EscapeName(t.Name)),
		AssembleProgress: shown.bytes("build " + cli.EscapeName(t.Name)),
	})
	shown.end()
	if err != nil {
		return explainResume(ctx, err)
	}
	_, err = fmt.Fprintf(o.Out, "pulled %s %s (%s)\n", cli.EscapeName(vm.Name), cli.EscapeName(vm.Tag), vm.ID)
	return err
}

// explainResume adds to an error how to resume after an interruption.
func explainResume(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return cli.Exit(cli.ExitInterrupted, errors.New("interrupted; repeat the command to resume"))
}
