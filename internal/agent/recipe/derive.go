package recipe

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Names are the names of the files that a save adds to its base.
type Names struct {
	Layers []string // for each drive
	State  string
}

// maxStem bounds the part of a name that comes from the base: a registry takes 128
// bytes in all.
const maxStem = 96

// NamesFor gives names that the base does not use.
func NamesFor(config api.TemplateConfig) Names {
	taken := map[string]bool{config.StateFile: true}
	n := 1
	for _, d := range config.HardDrives {
		n = max(n, len(d.Layers)+1)
		taken[d.File] = true
		for _, l := range d.Layers {
			taken[l] = true
		}
	}
	for ; ; n++ {
		names := namesAt(config, n)
		free := !taken[names.State]
		for _, l := range names.Layers {
			free = free && !taken[l]
		}
		if free {
			return names
		}
	}
}

func namesAt(config api.TemplateConfig, n int) Names {
	names := Names{State: "state." + strconv.Itoa(n)}
	seen := map[string]bool{}
	for i, d := range config.HardDrives {
		stem := strings.TrimSuffix(d.File, ".qcow2")
		if len(stem) > maxStem || seen[stem] {
			stem = "disk" + strconv.Itoa(i)
		}
		seen[stem] = true
		names.Layers = append(names.Layers, fmt.Sprintf("%s.%d.qcow2", stem, n))
	}
	return names
}

// File is one file of a version.
type File struct {
	Name   string
	Kind   string // api.FileDisk or api.FileState
	Format string // "raw", "qcow2" or ""
}

// DiskFiles gives the files of a version that a version made from it needs: those of
// its disks. Its state is not among them, since memory has no layers.
func DiskFiles(config api.TemplateConfig) ([]File, error) {
	var list []File
	seen := map[string]bool{}
	for _, d := range config.HardDrives {
		format := formatOf(d)
		for _, name := range append([]string{d.File}, d.Layers...) {
			if err := checkName("disk", name); err != nil {
				return nil, err
			}
			if !seen[name] {
				list = append(list, File{Name: name, Kind: api.FileDisk, Format: format})
			}
			seen[name], format = true, "qcow2"
		}
	}
	return list, nil
}

// Changes are what a save makes of its base's configuration.
type Changes struct {
	Save     string // id of the save
	Names    Names  // State "" for a guest that was shut down
	Pin      *api.StatePin
	CPUs     int // as the VM has them
	MemoryMB int
	Mode     string // of the network; "" as before
	MAC      string // of the suspended guest's card
	Video    string // "" as before
}

// Derive gives the configuration of the version that a save makes. Fields that
// nobody here knows are kept.
func Derive(base []byte, c Changes) ([]byte, error) {
	config, err := decode(base)
	if err != nil {
		return nil, err
	}
	suspended := config["state_file"] != nil
	config.set("save", c.Save)
	config.set("ram", strconv.Itoa(c.MemoryMB)+"M")
	delete(config, "state_file")
	delete(config, "state_pin")
	if c.Names.State != "" {
		config.set("state_file", c.Names.State)
		config.set("state_pin", c.Pin)
	}
	for _, edit := range []error{
		config.edit("cpu", func(cpu object) { cpu.set("cores", c.CPUs) }),
		config.drives(c.Names.Layers),
		config.card(c, suspended),
	} {
		if edit != nil {
			return nil, edit
		}
	}
	if c.Video != "" {
		if err := config.edit("display", func(d object) { d.set("video_controller", c.Video) }); err != nil {
			return nil, err
		}
	}
	return json.Marshal(config)
}

// object is a JSON object of which only some fields are known.
type object map[string]json.RawMessage

func decode(raw []byte) (object, error) {
	o := object{}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, unusable(err)
	}
	if o == nil { // "null"
		o = object{}
	}
	return o, nil
}

func unusable(err error) error {
	return &farm.Error{Code: farm.CodeRefused, Message: "The template's configuration cannot be read", Err: err}
}

func (o object) set(name string, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err) // no such value is given above
	}
	o[name] = raw
}

// edit changes an object within the object; a missing one is made.
func (o object) edit(name string, change func(object)) error {
	inner := object{}
	if raw := o[name]; raw != nil {
		var err error
		if inner, err = decode(raw); err != nil {
			return err
		}
	}
	change(inner)
	o.set(name, inner)
	return nil
}

// list gives a list of objects within the object.
func (o object) list(name string) ([]object, error) {
	var list []object
	if raw := o[name]; raw != nil {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, unusable(err)
		}
	}
	for i := range list {
		if list[i] == nil {
			list[i] = object{}
		}
	}
	return list, nil
}

// drives puts one more layer on each disk.
func (o object) drives(layers []string) error {
	drives, err := o.list("hard_drives")
	if err != nil {
		return err
	}
	if len(drives) != len(layers) {
		return farm.Refused("The VM has %d disks and its template %d", len(layers), len(drives))
	}
	if len(drives) == 0 {
		return nil
	}
	for i, d := range drives {
		var below []string
		if raw := d["layers"]; raw != nil {
			if err := json.Unmarshal(raw, &below); err != nil {
				return unusable(err)
			}
		}
		d.set("layers", append(below, layers[i]))
	}
	o.set("hard_drives", drives)
	return nil
}

// card notes how the guest is connected. The address of a suspended guest stays in
// its state and is noted for readers; a guest that was shut down leaves none behind,
// or all that are started from the version would have the same.
func (o object) card(c Changes, suspended bool) error {
	cards, err := o.list("network_cards")
	if err != nil {
		return err
	}
	mac := c.Names.State != "" && c.MAC != ""
	if len(cards) == 0 {
		if c.Mode == "" && !mac {
			return nil
		}
		cards = []object{{}}
	}
	if c.Mode != "" {
		cards[0].set("mode", c.Mode)
	}
	switch {
	case mac:
		cards[0].set("mac_address", c.MAC)
	case suspended:
		delete(cards[0], "mac_address")
	}
	o.set("network_cards", cards)
	return nil
}

// Named gives a configuration as a registry keeps it: with the template's id and name.
func Named(config []byte, id, name string) ([]byte, error) {
	o, err := decode(config)
	if err != nil {
		return nil, err
	}
	o.set("uuid", id)
	o.set("name", name)
	return json.Marshal(o)
}
