package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

var (
	cloneOptions = optionTable{
		"stacked": noValue, "insecure": noValue, "concurrency": takesValue, "prune-limit": takesValue,
	}
	createOptions = optionTable{
		"from-ipsw": takesValue, "linux": noValue, "disk-size": takesValue, "disk-format": takesValue,
	}
)

const (
	gigabyte   = 1_000_000_000 // tart's unit of disk sizes
	nvramBytes = 33_554_432    // not confirmed: "a little under 34 MB"
)

// createVM makes a VM without a guest: --from-ipsw takes any file that exists.
func createVM(_ context.Context, c *call) error {
	ipsw, isLinux := c.value("", "from-ipsw"), c.has("linux")
	if (ipsw != "") == isLinux {
		return usage("create", "Please specify either a --from-ipsw or --linux option!")
	}
	if ipsw != "" && !exists(ipsw) {
		return fail(1, "Error: The file “%s” couldn’t be opened because there is no such file.", // glossary:allow
			filepath.Base(ipsw))
	}
	size, err := c.number(50, "disk-size")
	if err != nil {
		return err
	}
	system := map[bool]string{true: "linux", false: "darwin"}[isLinux]
	return c.build(c.name(), func(v *vm) error {
		if err := v.writeConfig(newConfig(system)); err != nil {
			return err
		}
		return formatGuest(v, int64(size)*gigabyte)
	})
}

// cloneVM copies all files of a VM. The ECID stays, and the MAC changes only if a local VM has it, which the source is.
func cloneVM(_ context.Context, c *call) error {
	source, err := c.existing(c.operands[0])
	if err != nil {
		return err
	}
	state, err := source.state()
	if err != nil {
		return err
	}
	return c.build(c.operands[1], func(v *vm) error {
		for _, file := range []string{configFile, diskFile, nvramFile, stateFile} {
			if !exists(source.path(file)) {
				continue
			}
			if err := c.cloneFile(v.name, source.path(file), v.path(file)); err != nil {
				return err
			}
		}
		config, err := v.config()
		if err != nil || state == "suspended" {
			return err
		}
		config.MACAddress = randomMAC()
		return v.writeConfig(config)
	})
}

func deleteVMs(_ context.Context, c *call) error {
	for _, name := range c.operands {
		v, err := c.existing(name)
		if err != nil {
			return err
		}
		pid, err := v.owner()
		if err != nil {
			return err
		}
		if pid != 0 {
			return fail(1, "VM \"%s\" is running", name)
		}
		if err := os.RemoveAll(v.dir); err != nil {
			return err
		}
	}
	return nil
}

func renameVM(_ context.Context, c *call) error {
	v, err := c.existing(c.operands[0])
	if err != nil {
		return err
	}
	to := c.vm(c.operands[1])
	if exists(to.dir) {
		return fail(1, "Error: failed to rename a non-existent local VM: %s: %v", to.name, fs.ErrExist)
	}
	return os.Rename(v.dir, to.dir)
}

var setOptions = optionTable{
	"cpu": takesValue, "memory": takesValue, "display": takesValue, "display-refit": noValue,
	"no-display-refit": noValue, "random-mac": noValue, "random-serial": noValue, "disk": takesValue,
	"disk-size": takesValue,
}

// setters change a configuration by one option each.
var setters = map[string]func(c *call, config *config) error{
	"cpu": func(c *call, config *config) (err error) {
		config.CPUCount, err = c.number(0, "cpu")
		if err == nil && config.CPUCount < config.CPUCountMin {
			err = fail(1, "Error: VM should have %d CPU cores at minimum (requested %d)", config.CPUCountMin,
				config.CPUCount)
		}
		return err
	},
	"memory": func(c *call, config *config) error {
		megabytes, err := c.number(0, "memory")
		config.MemorySize = int64(megabytes) << 20
		if err == nil && config.MemorySize < config.MemorySizeMin {
			err = fail(1, "Error: VM should have %d bytes of memory at minimum (requested %d)", config.MemorySizeMin,
				config.MemorySize)
		}
		return err
	},
	"display": func(c *call, config *config) error {
		config.Display = display{}
		text := c.value("", "display")
		for _, unit := range []string{"pt", "px"} {
			if strings.HasSuffix(text, unit) {
				config.Display.Unit = unit
			}
		}
		if _, err := fmt.Sscanf(text, "%dx%d", &config.Display.Width, &config.Display.Height); err != nil {
			return usage("set", "The value '%s' is invalid for '--display'", text)
		}
		return nil
	},
	"display-refit":    func(_ *call, config *config) error { config.DisplayRefit = new(true); return nil },
	"no-display-refit": func(_ *call, config *config) error { config.DisplayRefit = new(false); return nil },
	"random-mac":       func(_ *call, config *config) error { config.MACAddress = randomMAC(); return nil },
	"random-serial":    func(_ *call, config *config) error { config.ECID = randomECID(); return nil },
}

func setVM(_ context.Context, c *call) error {
	v, err := c.existing(c.name())
	if err != nil {
		return err
	}
	config, err := v.config()
	if err != nil {
		return err
	}
	for option, set := range setters {
		if !c.has(option) {
			continue
		}
		if err := set(c, &config); err != nil {
			return err
		}
	}
	if err := v.writeConfig(config); err != nil {
		return err
	}
	if disk := c.value("", "disk"); disk != "" {
		_ = os.Remove(v.path(diskFile))
		if err := c.cloneFile(v.name, disk, v.path(diskFile)); err != nil {
			return err
		}
	}
	return growDisk(c, v)
}

func growDisk(c *call, v *vm) error {
	size, err := c.number(0, "disk-size")
	if err != nil || !c.has("disk-size") {
		return err
	}
	info, err := os.Stat(v.path(diskFile))
	if err != nil {
		return err
	}
	if wanted := int64(size) * gigabyte; wanted != info.Size() {
		if wanted < info.Size() {
			return fail(1, "new disk size of %d bytes should be larger than the current disk size of %d bytes", wanted,
				info.Size())
		}
		return os.Truncate(v.path(diskFile), wanted)
	}
	return nil
}
