package registry

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of the part of a macOS guest.
const (
	maxApplePropertyList = 4 << 10 // bytes
	appleDrives          = 2       // root disk and auxiliary storage
)

// checkGuest refuses a guest that no node can run: one of another operating system, or a macOS guest
// whose parts do not fit. arch is that of the push.
func checkGuest(c api.TemplateConfig, arch string) error {
	archive := slices.IndexFunc(c.HardDrives, isArchive)
	switch {
	case c.OS != "" && !slices.Contains(farm.GuestOSes, c.OS):
		return invalidField("os", "must be one of %s, not %q", strings.Join(farm.GuestOSes, ", "), c.OS)
	case c.Apple == nil && archive >= 0:
		return invalidField(fmt.Sprintf("hard_drives[%d].format", archive),
			"must not be %s without an apple block: such an archive has a macOS guest", api.FormatAnka)
	case c.Apple == nil && c.OS == farm.OSMacOS:
		return invalidField("apple", "must not be left out for a macOS guest")
	case c.Apple == nil:
		return nil
	case c.OS != farm.OSMacOS:
		return invalidField("os", "must be macos where there is an apple block, not %q", c.OS)
	case arch != "" && arch != "arm64":
		return farm.Invalid("arch", "must be arm64 where the configuration has an apple block, not %q", arch)
	}
	minListBytes := 1
	if archive >= 0 {
		minListBytes = 0 // the archive has its own
	}
	if err := checkApple(c.Apple, minListBytes); err != nil {
		return err
	}
	return checkAppleMachine(c)
}

// isArchive reports whether a drive is an archive of anka.
func isArchive(d api.ConfigDrive) bool { return d.Format == api.FormatAnka }

func checkApple(a *api.ConfigApple, minListBytes int) error {
	for _, list := range []struct {
		field string
		value []byte
	}{{"apple.hardware_model", a.HardwareModel}, {"apple.machine_id", a.MachineID}} {
		if n := len(list.value); n < minListBytes || n > maxApplePropertyList {
			return invalidField(list.field, "has %d bytes: want %d to %d", n, minListBytes, maxApplePropertyList)
		}
	}
	switch {
	case a.MinCPUs < 0 || a.MinCPUs > maxCores:
		return invalidField("apple.cpu_min", "is %d: want 0 to %d", a.MinCPUs, maxCores)
	case a.MinMemoryMB < 0 || a.MinMemoryMB > maxRAM:
		return invalidField("apple.memory_min", "is %d: want 0 to %d MiB", a.MinMemoryMB, maxRAM)
	case a.Identity != "" && a.Identity != api.IdentityKeep && a.Identity != api.IdentityNew:
		return invalidField("apple.identity", "must be keep or new, not %q", a.Identity)
	}
	return nil
}

// checkAppleMachine refuses what a macOS guest on Apple silicon cannot have.
func checkAppleMachine(c api.TemplateConfig) error {
	if err := checkAppleDrives(c.HardDrives); err != nil {
		return err
	}
	switch {
	case c.CPU != nil && c.CPU.Cores < c.Apple.MinCPUs:
		return invalidField("cpu.cores", "is %d, less than apple.cpu_min, which is %d", c.CPU.Cores, c.Apple.MinCPUs)
	case c.RAM != "" && ramMiB(c.RAM) < c.Apple.MinMemoryMB:
		return invalidField("ram", "is %s, less than apple.memory_min, which is %d MiB", c.RAM, c.Apple.MinMemoryMB)
	case c.Firmware != nil && c.Firmware.Type != "":
		return invalidField("firmware.type", "must be left out for a macOS guest")
	case c.Display != nil && c.Display.Video == farm.VideoVGA:
		return invalidField("display.video_controller", farm.RefusalMacOSVideo, c.Display.Video)
	case c.StateFile != "":
		return invalidField("state_file", "must be left out: the state of a macOS guest is tied to its Mac")
	}
	return nil
}

// checkAppleDrives refuses drives other than an archive of anka, or root disk and auxiliary storage.
func checkAppleDrives(drives []api.ConfigDrive) error {
	switch {
	case len(drives) == 1 && isArchive(drives[0]):
		return nil
	case slices.ContainsFunc(drives, isArchive):
		return invalidField("hard_drives", "are %d: an archive of anka has a whole guest and is its only drive",
			len(drives))
	case len(drives) != appleDrives:
		return invalidField("hard_drives", "are %d: a macOS guest has its root disk and its auxiliary storage",
			len(drives))
	}
	for i, d := range drives {
		if d.Format != "raw" {
			return invalidField("hard_drives", "must be raw for a macOS guest; that of drive %d is %q", i, d.Format)
		}
	}
	return nil
}

// isBadBase64 reports whether bytes of a configuration could not be decoded.
func isBadBase64(err error) bool {
	_, bad := errors.AsType[base64.CorruptInputError](err)
	return bad
}
