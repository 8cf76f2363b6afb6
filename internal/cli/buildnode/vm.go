package buildnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/agent/localtemplate"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/qemu"
)

func vmCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Manage local templates",
		Long: `vm manages the local templates of this host. A template is a disk with a configuration; "buildnode
registry push" publishes it as a version of a registry template.`,
		Args: cobra.NoArgs, RunE: showHelp,
	}
	cmd.AddCommand(vmImport(g), vmCreate(g), vmList(g), vmShow(g), vmModify(g), vmDelete(g), vmExport(g))
	return cmd
}

// showHelp is the action of a command with subcommands only.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func (g *globals) localTemplates() (*localtemplate.Store, error) {
	at, err := g.openDataDir()
	if err != nil {
		return nil, err
	}
	if err := at.Create(); err != nil {
		return nil, err
	}
	return localtemplate.Open(at.LocalTemplateDir(), imageDriver())
}

// imageDriver returns what checks, creates and converts disk images on this host.
func imageDriver() hv.ImageDriver { return qemu.Images{} }

// settingFlags are the settings of a template as flags.
type settingFlags struct {
	name, arch, ram, network, firmware string
	cpu                                int
	ports                              []string
}

func (f *settingFlags) add(cmd *cobra.Command, fs *pflag.FlagSet) {
	fs.StringVar(&f.name, "name", "", "name of the template")
	fs.StringVar(&f.arch, "arch", "", "architecture: amd64 or arm64")
	fs.IntVar(&f.cpu, "cpu", 0, "virtual CPUs")
	fs.StringVar(&f.ram, "ram", "", "memory in MiB, or with a unit such as 4G")
	fs.StringVar(&f.network, "network", "", "network mode: "+strings.Join(localtemplate.Networks, ", "))
	fs.StringVar(&f.firmware, "firmware", "", "firmware: bios or uefi")
	fs.StringArrayVar(&f.ports, "port", nil,
		`port rule name:guest[:host][/udp]; repeatable; "ssh" is ssh:22, "none" removes all rules`)
	for flag, choice := range map[string][]string{
		"arch": localtemplate.Archs, "network": localtemplate.Networks, "firmware": localtemplate.Firmwares,
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(choice, cobra.ShellCompDirectiveNoFileComp))
	}
}

// settings reads the flags; a setting without a flag is not changed.
func (f *settingFlags) settings(fs *pflag.FlagSet) (localtemplate.Settings, error) {
	s := localtemplate.Settings{Name: f.name, Arch: f.arch, CPUs: f.cpu, NetworkMode: f.network, Firmware: f.firmware}
	if f.ram != "" {
		ram, err := bytesize.Parse("ram", f.ram, bytesize.MB)
		if err != nil {
			return s, err
		}
		if s.MemoryMB = int(ram / bytesize.MB); s.MemoryMB == 0 {
			return s, farm.Invalid("ram", "%q is less than 1 MiB", f.ram)
		}
	}
	if fs.Changed("cpu") && f.cpu < 1 {
		return s, farm.Invalid("cpu", "%d virtual CPUs", f.cpu)
	}
	if fs.Changed("port") {
		ports, err := localtemplate.ParsePorts(f.ports)
		if err != nil {
			return s, err
		}
		s.Ports = ports
	}
	return s, nil
}

// warnUnsupported warns about settings of a template that no driver of this version supports.
func (g *globals) warnUnsupported(s localtemplate.Settings, arch string) {
	if s.Firmware != "" && s.Firmware != localtemplate.DefaultFirmware(arch) {
		_, _ = fmt.Fprintf(g.Err, "warning: the hypervisor drivers of this version do not support firmware %s for %s\n",
			s.Firmware, arch)
	}
}

// ImportOptions are the options of vm import.
type ImportOptions struct {
	*globals
	Image    hv.Disk
	Mac      localtemplate.MacOSGuest // instead of Image: a macOS guest
	Anka     localtemplate.AnkaVM     // instead of both: a macOS guest of anka
	Settings localtemplate.Settings
	Output   cli.Format
}

func vmImport(g *globals) *cobra.Command {
	o, flags, mac := ImportOptions{globals: g}, imageFlags{}, macOSFlags{}
	cmd := &cobra.Command{
		Use:   "import [disk file]",
		Short: "Create a template from an image or VM",
		Long: `import copies a disk image (raw or qcow2) to a new local template. A raw image is converted to qcow2. The
guest needs a boot loader on its disk and the QEMU guest agent.

With --tart it takes a stopped macOS guest of tart, with --aux one of another program; its disks stay raw. With
--anka it takes one of anka, as an archive made by "anka export", which starts only on nodes with anka.`,
		Example: `  buildnode vm import debian.qcow2 --name debian --cpu 2 --ram 4G
  buildnode vm import disk.img --name web --port ssh --port web:80:8080
  buildnode vm import --tart sonoma-xcode --name sonoma
  buildnode vm import --anka sonoma-xcode --name sonoma`,
		Args: cobra.MaximumNArgs(1),
	}
	flags.add(cmd)
	mac.add(cmd)
	o.Output.Add(cmd)
	_ = cmd.MarkFlagRequired("name")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		switch {
		case mac.isSet():
			if o.Settings, err = flags.settings.settings(cmd.Flags()); err != nil {
				return cli.Usage(err)
			}
			if mac.anka != "" {
				if o.Anka, err = mac.ankaVM(cmd.Context(), args); err != nil {
					return err
				}
				return o.run(cmd.Context(), o.importAnka)
			}
			if o.Mac, err = mac.image(args); err != nil {
				return err
			}
			return o.run(cmd.Context(), o.importMac)
		case len(args) == 0:
			return cli.Usage(errors.New("import needs a disk file, --tart or --anka"))
		}
		if o.Image, o.Settings, err = flags.read(cmd, args[0]); err != nil {
			return err
		}
		return o.run(cmd.Context(), o.importImage)
	}
	return cmd
}

// importImage imports Image.
func (o *ImportOptions) importImage(
	ctx context.Context, l *localtemplate.Store, progress localtemplate.Progress,
) (localtemplate.Template, error) {
	return l.Import(ctx, o.Image, o.Settings, progress)
}

// importMac makes the template from root disk and auxiliary storage of a macOS guest.
func (o *ImportOptions) importMac(
	ctx context.Context, l *localtemplate.Store, progress localtemplate.Progress,
) (localtemplate.Template, error) {
	return l.ImportMacOS(ctx, o.Mac, o.Settings, progress)
}

// importAnka makes the template from the VM of anka.
func (o *ImportOptions) importAnka(
	ctx context.Context, l *localtemplate.Store, progress localtemplate.Progress,
) (localtemplate.Template, error) {
	return l.ImportAnka(ctx, o.Anka, o.Settings, progress)
}

// imageFile returns the disk image at a path.
func imageFile(path, format string) (hv.Disk, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return hv.Disk{}, farm.Errorf(farm.CodeNotFound, "File %s not found", path)
	}
	format, err := localtemplate.ImageFormat(path, format)
	if err != nil {
		return hv.Disk{}, cli.Usage(err)
	}
	return hv.Disk{Path: path, Format: format}, nil
}

func (o *ImportOptions) run(
	ctx context.Context,
	importTemplate func(context.Context, *localtemplate.Store, localtemplate.Progress) (localtemplate.Template, error),
) error {
	l, err := o.localTemplates()
	if err != nil {
		return err
	}
	b := newProgressBar(o.Err, "import "+cli.EscapeName(o.Settings.Name))
	vm, err := importTemplate(ctx, l, b.update)
	b.end()
	if err != nil && ctx.Err() != nil {
		return cli.Exit(cli.ExitInterrupted, errors.New("interrupted; the template was removed, repeat the command"))
	}
	if err != nil {
		return err
	}
	o.warnUnsupported(o.Settings, vm.Arch)
	return o.Output.Write(o.Out, vm, func(g *cli.Grid) { showVM(g, vm) })
}

// CreateOptions are the options of vm create.
type CreateOptions struct {
	*globals
	DiskSize string
	Output   cli.Format
}

func vmCreate(g *globals) *cobra.Command {
	o, flags := CreateOptions{globals: g}, settingFlags{}
	cmd := &cobra.Command{
		Use:     "create",
		Short:   "Create a template with an empty disk",
		Example: `  buildnode vm create --name scratch --disk-size 20G --cpu 2 --ram 4G`,
		Args:    cobra.NoArgs,
	}
	flags.add(cmd, cmd.Flags())
	cmd.Flags().StringVar(&o.DiskSize, "disk-size", "", "size of the disk, such as 20G")
	o.Output.Add(cmd)
	_ = cmd.MarkFlagRequired("name")
	_ = cmd.MarkFlagRequired("disk-size")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := flags.settings(cmd.Flags())
		if err != nil {
			return cli.Usage(err)
		}
		return o.run(cmd.Context(), s)
	}
	return cmd
}

func (o *CreateOptions) run(ctx context.Context, s localtemplate.Settings) error {
	bytes, err := bytesize.Parse("disk-size", o.DiskSize, bytesize.GB)
	if err != nil {
		return cli.Usage(err)
	}
	l, err := o.localTemplates()
	if err != nil {
		return err
	}
	vm, err := l.Create(ctx, bytes, s)
	if err != nil {
		return err
	}
	o.warnUnsupported(s, vm.Arch)
	return o.Output.Write(o.Out, vm, func(g *cli.Grid) { showVM(g, vm) })
}

func vmList(g *globals) *cobra.Command {
	var output cli.Format
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List local templates",
		Example: `  buildnode vm list --output json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			l, err := g.localTemplates()
			if err != nil {
				return err
			}
			list, bad := l.List() // damaged templates do not hide the others
			err = output.Write(g.Out, list, func(t *cli.Grid) {
				t.Row("ID", "NAME", "ARCH", "CPUS", "RAM", "SIZE", "TAG")
				for _, vm := range list {
					t.Row(vm.ID, vm.Name, vm.Arch, vm.CPUs, fmt.Sprintf("%d MiB", vm.MemoryMB),
						bytesize.Format(vm.SizeBytes), vm.Tag)
				}
			})
			if err != nil {
				return err
			}
			return bad
		},
	}
	output.Add(cmd)
	return cmd
}

func vmShow(g *globals) *cobra.Command {
	var output cli.Format
	cmd := &cobra.Command{
		Use:     "show <vm>",
		Short:   "Show a local template",
		Example: `  buildnode vm show debian`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, vm, err := g.findLocalTemplate(args[0])
			if err != nil {
				return err
			}
			return output.Write(g.Out, vm, func(t *cli.Grid) { showVM(t, vm) })
		},
	}
	output.Add(cmd)
	return cmd
}

func vmModify(g *globals) *cobra.Command {
	flags := settingFlags{}
	var output cli.Format
	cmd := &cobra.Command{
		Use:   "modify <vm>",
		Short: "Change the settings of a local template",
		Long:  `modify changes the given settings; --port replaces all rules.`,
		Example: `  buildnode vm modify debian --ram 8G --cpu 4
  buildnode vm modify debian --port ssh --port web:80:8080
  buildnode vm modify debian --port none`,
		Args: cobra.ExactArgs(1),
	}
	flags.add(cmd, cmd.Flags())
	output.Add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := flags.settings(cmd.Flags())
		if err != nil {
			return cli.Usage(err)
		}
		l, vm, err := g.findLocalTemplate(args[0])
		if err != nil {
			return err
		}
		if vm, err = l.Modify(vm.ID, s); err != nil {
			return err
		}
		g.warnUnsupported(s, vm.Arch)
		return output.Write(g.Out, vm, func(t *cli.Grid) { showVM(t, vm) })
	}
	return cmd
}

func vmDelete(g *globals) *cobra.Command {
	var yes cli.Confirmation
	cmd := &cobra.Command{
		Use:   "delete <vm>",
		Short: "Delete a local template",
		Long: `delete removes a local template. Its pushed versions stay in the registry, and running instances continue:
they do not use local templates.`,
		Example: `  buildnode vm delete debian --yes`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, vm, err := g.findLocalTemplate(args[0])
			if err != nil {
				return err
			}
			if err := yes.Ask(cmd.Context(), g.Streams, "Delete the local template %s?", vm.Name); err != nil {
				return err
			}
			if err := l.Delete(vm.ID); err != nil {
				return err
			}
			_, err = fmt.Fprintf(g.Out, "deleted %s (%s)\n", cli.EscapeName(vm.Name), vm.ID)
			return err
		},
	}
	yes.Add(cmd)
	return cmd
}

func (g *globals) findLocalTemplate(name string) (*localtemplate.Store, localtemplate.Template, error) {
	l, err := g.localTemplates()
	if err != nil {
		return nil, localtemplate.Template{}, err
	}
	vm, err := l.Find(name)
	return l, vm, err
}

// driversOf returns the drivers that can run a template.
func driversOf(vm localtemplate.Template) []string {
	isArchive := func(d localtemplate.Disk) bool { return d.Format == hv.FormatAnka }
	switch {
	case slices.ContainsFunc(vm.Disks, isArchive):
		return []string{DriverAnka}
	case vm.OS == farm.OSMacOS:
		return []string{DriverTart}
	}
	return []string{DriverQEMU}
}

func showVM(g *cli.Grid, vm localtemplate.Template) {
	g.Row("ID", vm.ID)
	g.Row("Name", vm.Name)
	g.Row("Architecture", vm.Arch)
	g.Row("Guest", cmp.Or(vm.OS, "-"))
	g.Row("Drivers", strings.Join(driversOf(vm), ", "))
	g.Row("CPUs", vm.CPUs)
	g.Row("RAM", fmt.Sprintf("%d MiB", vm.MemoryMB))
	g.Row("Firmware", cmp.Or(vm.Firmware, "-"))
	g.Row("Network", vm.NetworkMode)
	rules := make([]string, len(vm.Ports))
	for i, p := range vm.Ports {
		rules[i] = localtemplate.FormatPort(p)
	}
	g.Row("Ports", strings.Join(rules, ", "))
	for _, d := range vm.Disks {
		g.Row("Disk", d.FileName+" ("+d.Format+", "+bytesize.Format(d.SizeBytes)+")")
	}
	g.Row("Size", bytesize.Format(vm.SizeBytes))
	if vm.Tag != "" {
		g.Row("Tag", vm.Tag)
	}
}
