package vmconfig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// FileNames are the names of a save's files.
type FileNames struct {
	Disks []string // for each drive
	State string
}

// FileNamesFor keeps the names of the disks, each of which is a separate file from now on, and chooses
// a name for the state that the base does not use.
func FileNamesFor(config api.TemplateConfig) FileNames {
	taken := map[string]bool{config.StateFile: true}
	for _, d := range config.HardDrives {
		taken[d.File] = true
	}
	free := func(form string, n int) string {
		for taken[fmt.Sprintf(form, n)] {
			n++
		}
		name := fmt.Sprintf(form, n)
		taken[name] = true
		return name
	}
	var names FileNames
	for i, d := range config.HardDrives {
		name := d.File
		if slices.Contains(names.Disks, name) { // two drives that began with the same file
			name = free("disk%d.img", i)
		}
		names.Disks = append(names.Disks, name)
	}
	names.State = free("state.%d", 1)
	return names
}

// Changes are a save's changes to the configuration of its base.
type Changes struct {
	SaveID          string    // ID of the save
	FileNames       FileNames // State "" for a guest that was shut down
	StatePin        *api.StateRequirements
	CPUs            int // as the VM has them
	MemoryMB        int
	NetworkMode     string // of the network; "" as before
	MAC             string // of the suspended guest's card
	VideoController string // "" as before
}

// DeriveConfig returns the configuration of the version that a save creates. Unknown fields are preserved.
func DeriveConfig(base []byte, c Changes) ([]byte, error) {
	config, err := decodeObject(base)
	if err != nil {
		return nil, err
	}
	suspended := config["state_file"] != nil
	config.setField("save", c.SaveID)
	config.setField("ram", strconv.Itoa(c.MemoryMB)+"M")
	delete(config, "state_file")
	delete(config, "state_pin")
	if c.FileNames.State != "" {
		config.setField("state_file", c.FileNames.State)
		config.setField("state_pin", c.StatePin)
	}
	for _, edit := range []error{
		config.editObject("cpu", func(cpu jsonObject) { cpu.setField("cores", c.CPUs) }),
		config.setDriveFiles(c.FileNames.Disks),
		config.setNIC(c, suspended),
	} {
		if edit != nil {
			return nil, edit
		}
	}
	if c.VideoController != "" {
		if err := config.editObject("display",
			func(d jsonObject) { d.setField("video_controller", c.VideoController) }); err != nil {
			return nil, err
		}
	}
	return json.Marshal(config)
}

// jsonObject is a JSON object of which only some fields are known.
type jsonObject map[string]json.RawMessage

func decodeObject(raw []byte) (jsonObject, error) {
	o := jsonObject{}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, invalidConfig(err)
	}
	if o == nil { // "null"
		o = jsonObject{}
	}
	return o, nil
}

func invalidConfig(err error) error {
	return &farm.Error{Code: farm.CodeRefused, Message: "The template's configuration cannot be read", Err: err}
}

func (o jsonObject) setField(name string, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err) // such values do not occur above
	}
	o[name] = raw
}

// editObject changes an object within the object; a missing one is created.
func (o jsonObject) editObject(name string, change func(jsonObject)) error {
	inner := jsonObject{}
	if raw := o[name]; raw != nil {
		var err error
		if inner, err = decodeObject(raw); err != nil {
			return err
		}
	}
	change(inner)
	o.setField(name, inner)
	return nil
}

// objectList returns a list of objects within the object.
func (o jsonObject) objectList(name string) ([]jsonObject, error) {
	var list []jsonObject
	if raw := o[name]; raw != nil {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, invalidConfig(err)
		}
	}
	for i := range list {
		if list[i] == nil {
			list[i] = jsonObject{}
		}
	}
	return list, nil
}

// setDriveFiles sets the files of the disks, which are stored as a guest sees them.
func (o jsonObject) setDriveFiles(files []string) error {
	drives, err := o.objectList("hard_drives")
	if err != nil {
		return err
	}
	if len(drives) != len(files) {
		return farm.Refused("The VM has %d disks, but its template has %d", len(files), len(drives))
	}
	if len(drives) == 0 {
		return nil
	}
	for i, d := range drives {
		d.setField("file", files[i])
		d.setField("format", "raw")
	}
	o.setField("hard_drives", drives)
	return nil
}

// setNIC records how the guest is connected. The MAC address of a suspended guest stays in its state
// and is recorded for readers. A guest that was shut down leaves no address, otherwise all VMs
// started from the version would have the same one.
func (o jsonObject) setNIC(c Changes, suspended bool) error {
	cards, err := o.objectList("network_cards")
	if err != nil {
		return err
	}
	mac := c.FileNames.State != "" && c.MAC != ""
	if len(cards) == 0 {
		if c.NetworkMode == "" && !mac {
			return nil
		}
		cards = []jsonObject{{}}
	}
	if c.NetworkMode != "" {
		cards[0].setField("mode", c.NetworkMode)
	}
	switch {
	case mac:
		cards[0].setField("mac_address", c.MAC)
	case suspended:
		delete(cards[0], "mac_address")
	}
	o.setField("network_cards", cards)
	return nil
}

// WithTemplateName returns a configuration as a registry stores it: with the template's ID and name.
func WithTemplateName(config []byte, id, name string) ([]byte, error) {
	o, err := decodeObject(config)
	if err != nil {
		return nil, err
	}
	o.setField("uuid", id)
	o.setField("name", name)
	return json.Marshal(o)
}
