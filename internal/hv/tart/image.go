package tart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

// Files of a VM's directory that make it something else than two raw disks.
const (
	stateFile   = "state.vzvmsave" // of a suspended VM
	overlayFile = "overlay.asif"   // of a stacked VM
)

// FindImage returns the directory of a VM of tart: name is the directory, or a name below TART_HOME.
func FindImage(name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) || isDir(name) {
		return filepath.Abs(name)
	}
	home, err := userHome()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(home, vmsDir, name)
	if !isDir(dir) {
		return "", hv.RefusedError("tart has no VM %s: neither ./%s nor %s is a directory", name, name, dir)
	}
	return dir, nil
}

// userHome returns the directory of tart that the user of this process has without the driver.
func userHome() (string, error) {
	if home := os.Getenv("TART_HOME"); home != "" {
		return home, nil
	}
	user, err := os.UserHomeDir()
	return filepath.Join(user, ".tart"), err
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// ReadImage checks that the directory of a VM is one of a stopped macOS guest with two raw disks, and
// returns the paths of root disk and auxiliary storage with its configuration.
func ReadImage(dir string) (root, aux string, c BundleConfig, err error) {
	root, aux = filepath.Join(dir, rootFile), filepath.Join(dir, auxFile)
	if c, err = ReadBundleConfig(dir); err != nil {
		return root, aux, c, fmt.Errorf("read VM of tart: %w", err)
	}
	owner, err := cliproc.LockOwner(filepath.Join(dir, configFile))
	if err != nil {
		return root, aux, c, err
	}
	for _, refusal := range []struct {
		applies bool
		text    string
	}{
		{
			c.OS != "" && c.OS != "darwin",
			fmt.Sprintf("its guest is %s; only macOS guests are imported from tart", c.OS),
		},
		{owner != 0, "it is running; shut it down first"},
		{exists(filepath.Join(dir, stateFile)), "it is suspended; start it and shut it down first"},
		{
			exists(filepath.Join(dir, overlayFile)),
			"its disk is stacked on that of another VM; clone it to a separate VM first",
		},
		{
			c.DiskFormat != "" && c.DiskFormat != "raw",
			fmt.Sprintf("its disk has the format %s; create the VM with --disk-format raw", c.DiskFormat),
		},
		{len(c.HardwareModel) == 0 || len(c.MachineID) == 0, "its configuration has no hardware model or no ECID"},
		{!exists(root), "it has no " + rootFile},
		{!exists(aux), "it has no " + auxFile},
	} {
		if refusal.applies {
			return root, aux, c, hv.RefusedError("the VM in %s cannot be used: %s", dir, refusal.text)
		}
	}
	return root, aux, c, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// WriteImage makes the directory of a VM of tart from the disks of a macOS guest: whole, or not at all. dir
// must not exist.
func WriteImage(ctx context.Context, dir, root, aux string, s hv.Spec) error {
	if exists(dir) {
		return hv.RefusedError("%s exists; choose another directory, or remove it", dir)
	}
	temp := dir + ".new-" + newSuffix()
	if err := os.Mkdir(temp, 0o700); err != nil {
		return err
	}
	err := cloneOrCopy(ctx, root, filepath.Join(temp, rootFile))
	if err == nil {
		err = cloneOrCopy(ctx, aux, filepath.Join(temp, auxFile))
	}
	if err == nil {
		err = writeBundleConfig(temp, newBundleConfig(s))
	}
	if err == nil {
		err = os.Rename(temp, dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("export to %s: %w", dir, err), os.RemoveAll(temp))
	}
	return nil
}
