package registry

import (
	"encoding/base64"
	"errors"
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
	switch {
	case c.OS != "" && !slices.Contains(farm.GuestOSes, c.OS):
		return invalidField("os", "must be one of %s, not %q", strings.Join(farm.GuestOSes, ", "), c.OS)
	case c.Apple == nil:
		return nil
	case c.OS != farm.OSMacOS:
		return invalidField("os", "must be macos where there is an apple block, not %q", c.OS)
	case arch != "" && arch != "arm64":
		return farm.Invalid("arch", "must be arm64 where the configuration has an apple block, not %q", arch)
	}
	if err := checkApple(c.Apple); err != nil {
		return err
	}
	return checkAppleMachine(c)
}

func checkApple(a *api.ConfigApple) error {
	for _, list := range []struct {
		field string
		value []byte
	}{{"apple.hardware_model", a.HardwareModel}, {"apple.machine_id", a.MachineID}} {
		if n := len(list.value); n < 1 || n > maxApplePropertyList {
			return invalidField(list.field, "has %d bytes: want 1 to %d", n, maxApplePropertyList)
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
	if len(c.HardDrives) != appleDrives {
		return invalidField("hard_drives", "are %d: a macOS guest has its root disk and its auxiliary storage",
			len(c.HardDrives))
	}
	for i, d := range c.HardDrives {
		if d.Format != "raw" {
			return invalidField("hard_drives", "must be raw for a macOS guest; that of drive %d is %q", i, d.Format)
		}
	}
	switch {
	case c.CPU != nil && c.CPU.Cores < c.Apple.MinCPUs:
		return invalidField("cpu.cores", "is %d, less than apple.cpu_min, which is %d", c.CPU.Cores, c.Apple.MinCPUs)
	case c.Firmware != nil && c.Firmware.Type != "":
		return invalidField("firmware.type", "must be left out for a macOS guest")
	case c.Display != nil && c.Display.Video == farm.VideoVGA:
		return invalidField("display.video_controller", farm.RefusalMacOSVideo, c.Display.Video)
	case c.StateFile != "":
		return invalidField("state_file", "must be left out: the state of a macOS guest is tied to its Mac")
	}
	return nil
}

// isBadBase64 reports whether bytes of a configuration could not be decoded.
func isBadBase64(err error) bool {
	_, bad := errors.AsType[base64.CorruptInputError](err)
	return bad
}
