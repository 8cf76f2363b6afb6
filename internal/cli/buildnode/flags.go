package buildnode

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/agent/localtemplate"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/transfer"
)

// imageFlags are the flags of the two imports: the format of an image file and the settings of the
// new template.
type imageFlags struct {
	settings settingFlags
	format   string
}

func (f *imageFlags) add(cmd *cobra.Command) {
	f.settings.add(cmd, cmd.Flags())
	formatFlag(cmd, &f.format)
}

// read returns the image at a path and the settings.
func (f *imageFlags) read(cmd *cobra.Command, path string) (hv.Disk, localtemplate.Settings, error) {
	s, err := f.settings.settings(cmd.Flags())
	if err != nil {
		return hv.Disk{}, s, cli.Usage(err)
	}
	image, err := imageFile(path, f.format)
	return image, s, err
}

// tagFlags are the flags of the commands that create a new version in the registry.
type tagFlags struct {
	Tag         string
	Description string
	Existing    string
}

func (f *tagFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&f.Tag, "tag", "t", "", "tag of the new version")
	fs.StringVarP(&f.Description, "description", "d", "", "description of the new version")
	fs.StringVarP(&f.Existing, "vm", "v", "", "existing registry template (name or ID) that gets the new tag")
	_ = cmd.MarkFlagRequired("tag")
}

func (f *tagFlags) check() error {
	if f.Tag == "" {
		return cli.Usage(errors.New("invalid --tag: empty"))
	}
	return nil
}

// options asks the registry for the template; name is "" when the template is new.
func (f *tagFlags) options(
	ctx context.Context, client *transfer.Client,
) (o localtemplate.PushOptions, name string, err error) {
	o = localtemplate.PushOptions{Tag: f.Tag, Description: f.Description}
	if f.Existing == "" {
		return o, "", nil
	}
	target, err := findTemplate(ctx, client, f.Existing)
	o.TargetTemplate = target.ID
	return o, target.Name, err
}
