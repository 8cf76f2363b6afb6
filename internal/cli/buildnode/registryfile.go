package buildnode

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/agent/library"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/transfer"
)

// ExportOptions are the options of registry export.
type ExportOptions struct {
	*registryOptions
	Template string
	File     string
	Tag      string
	Disk     string
	Format   string
}

func registryExport(r *registryOptions) *cobra.Command {
	o := ExportOptions{registryOptions: r}
	cmd := &cobra.Command{
		Use:   "export <template> <file>",
		Short: "Write a disk of the registry into an image file",
		Long: `export pulls a tag (the latest one unless -t names another) and writes the disk that it
boots from, or the one that --disk names, as a raw or qcow2 image. No local template is made.
An export that was interrupted goes on when the same command is given again; until then what
was pulled lies beside the file.`,
		Example: `  buildnode registry export debian debian.qcow2
  buildnode registry export debian /mnt/debian.img -t v1`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Template, o.File = args[0], args[1]
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&o.Tag, "tag", "t", "", "tag to export (default: the latest)")
	cmd.Flags().StringVar(&o.Disk, "disk", "", "disk of the version (default: the one that it boots from)")
	formatFlag(cmd, &o.Format)
	return cmd
}

// formatFlag is the option that says what an image file is.
func formatFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVar(format, "format", "", "format of the image: raw or qcow2 (default: by the file's ending)")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"raw", "qcow2"}, cobra.ShellCompDirectiveNoFileComp))
}

func (o *ExportOptions) run(ctx context.Context) error {
	format, err := library.Format(o.File, o.Format)
	if err != nil {
		return cli.Usage(err)
	}
	client, err := o.client(tryTransfer)
	if err != nil {
		return err
	}
	defer client.Close()
	t, err := template(ctx, client, o.Template)
	if err != nil {
		return err
	}
	pull, convert := newBar(o.Err, "pull "+cli.Plain(t.Name)), newBar(o.Err, "convert "+cli.Plain(t.Name))
	err = library.Exchange{Images: images{}, Registry: client}.Export(ctx, library.ExportOptions{
		Ref: transfer.Ref{ID: t.ID, Tag: o.Tag}, Disk: o.Disk, To: hv.Disk{Path: o.File, Format: format},
		Pulled: func(p transfer.Progress) {
			pull.update(p.Done, p.Total)
			if p.Done == p.Total {
				pull.end()
			}
		},
		Converted: convert.update,
	})
	convert.end()
	if err != nil {
		return resumable(ctx, err)
	}
	_, err = fmt.Fprintf(o.Out, "exported %s to %s\n", cli.Plain(t.Name), cli.Plain(o.File))
	return err
}

// RegistryImportOptions are the options of registry import.
type RegistryImportOptions struct {
	*registryOptions
	Disk        string
	Format      string
	Tag         string
	Description string
	Existing    string
}

func registryImport(r *registryOptions) *cobra.Command {
	o, flags := RegistryImportOptions{registryOptions: r}, settingFlags{}
	cmd := &cobra.Command{
		Use:   "import <disk file>",
		Short: "Push a disk image as a tag, without a local template",
		Long: `import pushes a disk image (raw or qcow2) as the first tag of a new template, or with -v as
the next tag of an existing one. Nothing is copied on this host, and nobody may change the image
until it is pushed. An import that was interrupted goes on when the same command is given again.`,
		Example: `  buildnode registry import debian.qcow2 --name debian -t v1 --cpu 2 --ram 4G
  buildnode registry import disk.img -v debian -t v2`,
		Args: cobra.ExactArgs(1),
	}
	flags.add(cmd, cmd.Flags())
	formatFlag(cmd, &o.Format)
	cmd.Flags().StringVarP(&o.Tag, "tag", "t", "", "tag of the new version")
	cmd.Flags().StringVarP(&o.Description, "description", "d", "", "description of the new version")
	cmd.Flags().StringVarP(&o.Existing, "vm", "v", "", "template of the registry (name or id) that gets the tag")
	_ = cmd.MarkFlagRequired("tag")
	cmd.MarkFlagsOneRequired("name", "vm")
	cmd.MarkFlagsMutuallyExclusive("name", "vm")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.Disk = args[0]
		s, err := flags.settings(cmd.Flags())
		if err != nil {
			return cli.Usage(err)
		}
		return o.run(cmd.Context(), s)
	}
	return cmd
}

func (o *RegistryImportOptions) run(ctx context.Context, s library.Settings) error {
	if o.Tag == "" {
		return cli.Usage(errors.New("--tag is empty"))
	}
	image, err := imageFile(o.Disk, o.Format)
	if err != nil {
		return err
	}
	client, err := o.client(tryTransfer)
	if err != nil {
		return err
	}
	defer client.Close()
	push := library.PushOptions{Tag: o.Tag, Description: o.Description}
	if o.Existing != "" {
		target, err := template(ctx, client, o.Existing)
		if err != nil {
			return err
		}
		push.Existing, s.Name = target.ID, target.Name
	}
	b := newBar(o.Err, "push "+cli.Plain(s.Name))
	push.Progress = func(p transfer.Progress) { b.update(p.Done, p.Total) }
	result, err := library.Exchange{Images: images{}, Registry: client}.Publish(ctx, image, s, push)
	b.end()
	if err != nil {
		return resumable(ctx, err)
	}
	o.foretell(s)
	return o.pushed(result)
}
