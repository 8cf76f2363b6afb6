package buildnode

import (
	"cmp"
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/agent/localtemplate"
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
		Short: "Export a registry disk to an image file",
		Long: `export pulls a tag (default: the latest) and writes its boot disk, or --disk, as a raw or qcow2 image. It
creates no local template. Repeating the command resumes an interrupted export; until then the
pulled data is next to the file.`,
		Example: `  buildnode registry export debian debian.qcow2
  buildnode registry export debian /mnt/debian.img -t v1`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Template, o.File = args[0], args[1]
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&o.Tag, "tag", "t", "", "tag to export (default: the latest)")
	cmd.Flags().StringVar(&o.Disk, "disk", "", "disk of the version to export (default: the boot disk)")
	formatFlag(cmd, &o.Format)
	return cmd
}

// formatFlag adds the option for the format of an image file.
func formatFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVar(format, "format", "", "image format: raw or qcow2 (default: by the file extension)")
	_ = cmd.RegisterFlagCompletionFunc("format",
		cobra.FixedCompletions([]string{"raw", "qcow2"}, cobra.ShellCompDirectiveNoFileComp))
}

func (o *ExportOptions) run(ctx context.Context) error {
	format, err := localtemplate.ImageFormat(o.File, o.Format)
	if err != nil {
		return cli.Usage(err)
	}
	client, err := o.client(ctx, tryTransfer)
	if err != nil {
		return err
	}
	defer client.Close()
	t, err := findTemplate(ctx, client, o.Template)
	if err != nil {
		return err
	}
	shown := &stageBars{w: o.Err}
	images := localtemplate.RegistryImages{ImageTool: imageDriver(), Registry: client}
	err = images.Export(ctx, localtemplate.ExportOptions{
		Ref: transfer.VersionRef{ID: t.ID, Tag: o.Tag}, DiskName: o.Disk, Dest: hv.Disk{Path: o.File, Format: format},
		PullProgress:    shown.bytes("pull " + cli.EscapeName(t.Name)),
		ConvertProgress: shown.stage("convert " + cli.EscapeName(t.Name)),
	})
	shown.end()
	if err != nil {
		return explainResume(ctx, err)
	}
	_, err = fmt.Fprintf(o.Out, "exported %s to %s\n", cli.EscapeName(t.Name), cli.EscapeName(o.File))
	return err
}

// RegistryImportOptions are the options of registry import.
type RegistryImportOptions struct {
	*registryOptions
	tagFlags
	Image    hv.Disk
	Settings localtemplate.Settings
}

func registryImport(r *registryOptions) *cobra.Command {
	o, flags := RegistryImportOptions{registryOptions: r}, imageFlags{}
	cmd := &cobra.Command{
		Use:   "import <disk file>",
		Short: "Push a disk image as a new tag",
		Long: `import pushes a disk image (raw or qcow2) as the first tag of a new template, or with -v as the next tag
of an existing one, without a local copy. The image must not change during the push. If the template
is also a local template (buildnode registry pull), only the differences are sent. Repeating the
command resumes an interrupted import.`,
		Example: `  buildnode registry import debian.qcow2 --name debian -t v1 --cpu 2 --ram 4G
  buildnode registry import disk.img -v debian -t v2`,
		Args: cobra.ExactArgs(1),
	}
	flags.add(cmd)
	o.tagFlags.add(cmd)
	cmd.MarkFlagsOneRequired("name", "vm")
	cmd.MarkFlagsMutuallyExclusive("name", "vm")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.Image, o.Settings, err = flags.read(cmd, args[0]); err != nil {
			return err
		}
		return o.run(cmd.Context())
	}
	return cmd
}

func (o *RegistryImportOptions) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	client, err := o.client(ctx, tryTransfer)
	if err != nil {
		return err
	}
	defer client.Close()
	local, err := o.localTemplates()
	if err != nil {
		_, _ = fmt.Fprintf(o.Err, "warning: read local templates failed (%v); sending the whole image\n", err)
	}
	push, name, err := o.options(ctx, client)
	if err != nil {
		return err
	}
	if name != "" {
		o.Settings.Name = name
	}
	shown := &stageBars{w: o.Err}
	push.PushProgress = shown.bytes("push " + cli.EscapeName(o.Settings.Name))
	images := localtemplate.RegistryImages{ImageTool: imageDriver(), Registry: client, Store: local}
	result, err := images.Push(ctx, o.Image, o.Settings, push)
	shown.end()
	if err != nil {
		return explainResume(ctx, err)
	}
	o.warnUnsupported(o.Settings, cmp.Or(o.Settings.Arch, runtime.GOARCH))
	return o.printPush(result)
}
