package buildnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/agent/localtemplate"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/anka"
	"github.com/buildyard/buildyard/internal/hv/tart"
)

// macOSFlags select a macOS guest to import: a VM of tart or of anka, or its files.
type macOSFlags struct {
	tart, anka                    string
	aux, hardwareModel, machineID string
}

func (f *macOSFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.tart, "tart", "", "import a stopped VM of tart: its name, or its directory")
	fs.StringVar(&f.anka, "anka", "", "import a stopped VM of anka: its name, or its UUID")
	fs.StringVar(&f.aux, "aux", "",
		"auxiliary storage of a macOS guest whose raw root disk is the disk file; "+
			"needs --hardware-model and --machine-id")
	fs.StringVar(&f.hardwareModel, "hardware-model", "", "file with the guest's hardware model (property list)")
	fs.StringVar(&f.machineID, "machine-id", "", "file with the guest's machine identifier (property list)")
	for _, flag := range []string{"aux", "hardware-model", "machine-id"} {
		_ = cmd.MarkFlagFilename(flag)
	}
}

// isSet reports whether a macOS guest is imported.
func (f *macOSFlags) isSet() bool {
	return f.tart != "" || f.anka != "" || f.aux != "" || f.hardwareModel != "" || f.machineID != ""
}

// ankaVM returns the VM of anka that the flags select.
func (f *macOSFlags) ankaVM(ctx context.Context, args []string) (localtemplate.AnkaVM, error) {
	if len(args) > 0 || f.tart != "" || f.aux != "" || f.hardwareModel != "" || f.machineID != "" {
		return localtemplate.AnkaVM{}, cli.Usage(errors.New(
			"--anka selects the whole VM: leave out the disk file, --tart, --aux, --hardware-model and --machine-id"))
	}
	vm, err := anka.FindVM(ctx, "", f.anka)
	if err != nil {
		return localtemplate.AnkaVM{}, fmt.Errorf("--anka: %w", err)
	}
	return localtemplate.AnkaVM{
		CPUs: vm.CPUs, MemoryMB: vm.MemoryMiB, SizeBytes: vm.ImageBytes, Export: vm.Export,
	}, nil
}

// image returns the guest that the flags other than --anka and the arguments select.
func (f *macOSFlags) image(args []string) (localtemplate.MacOSGuest, error) {
	var none localtemplate.MacOSGuest
	switch {
	case f.tart != "" && (len(args) > 0 || f.aux != "" || f.hardwareModel != "" || f.machineID != ""):
		return none, cli.Usage(fmt.Errorf(
			"--tart selects the whole VM: leave out the disk file, --aux, --hardware-model and --machine-id"))
	case f.tart != "":
		return tartImage(f.tart)
	case len(args) == 0 || f.aux == "" || f.hardwareModel == "" || f.machineID == "":
		return none, cli.Usage(fmt.Errorf(
			"a macOS guest needs the root disk as argument, --aux, --hardware-model and --machine-id"))
	}
	model, err := readPropertyList("--hardware-model", f.hardwareModel, hv.MaxHardwareModelBytes)
	if err != nil {
		return none, err
	}
	id, err := readPropertyList("--machine-id", f.machineID, hv.MaxMachineIDBytes)
	return localtemplate.MacOSGuest{
		Root: args[0], Aux: f.aux, Apple: hv.Apple{HardwareModel: model, MachineID: id},
	}, err
}

// tartImage returns a VM of tart.
func tartImage(name string) (localtemplate.MacOSGuest, error) {
	dir, err := tart.FindImage(name)
	if err != nil {
		return localtemplate.MacOSGuest{}, err
	}
	root, aux, c, err := tart.ReadImage(dir)
	if err != nil {
		return localtemplate.MacOSGuest{}, err
	}
	return localtemplate.MacOSGuest{
		Root: root, Aux: aux, CPUs: c.CPUs, MemoryMB: int(c.MemoryBytes >> 20),
		Apple: hv.Apple{
			HardwareModel: c.HardwareModel, MachineID: c.MachineID,
			MinCPUs: c.MinCPUs, MinMemoryMiB: int(c.MinMemoryBytes >> 20),
		},
	}, nil
}

// readPropertyList reads a small file.
func readPropertyList(flag, path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && (len(text) == 0 || int64(len(text)) > limit) {
		err = farm.Invalid(flag, "%s is empty or larger than %d bytes", path, limit)
	}
	return text, err
}

func vmExport(g *globals) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "export <vm>",
		Short: "Export a macOS template as a VM of tart",
		Long: `export makes the directory of a VM of tart from a local template of macOS. The disks are clones where the
file system can, otherwise copies. In TART_HOME/vms, tart shows it under the name of the directory.`,
		Example: `  buildnode vm export sonoma --tart ~/.tart/vms/sonoma`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, vm, err := g.findLocalTemplate(args[0])
			if err != nil {
				return err
			}
			return g.exportMacOS(cmd.Context(), l, vm, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "tart", "", "directory to make")
	_ = cmd.MarkFlagRequired("tart")
	_ = cmd.MarkFlagDirname("tart")
	return cmd
}

func (g *globals) exportMacOS(
	ctx context.Context, l *localtemplate.Store, vm localtemplate.Template, dir string,
) error {
	image, release, err := l.ExportMacOS(vm.ID)
	if err != nil {
		return err
	}
	defer release()
	err = tart.WriteImage(ctx, dir, image.Root, image.Aux, hv.Spec{
		CPUs: image.CPUs, MemoryMB: image.MemoryMB, MAC: hv.DefaultMAC(vm.ID), Apple: &image.Apple,
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(g.Out, "exported to %s\n", dir)
	return err
}
