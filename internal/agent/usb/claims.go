// Package usb lists the USB devices of a node, and which of them are claimed for virtual machines.
//
// It attaches nothing: the hypervisor driver does, and the controller assigns devices to instances.
//
// Invariant: the file of claims is replaced as a whole, and every claim read from it has been
// validated, so that no unclaimed device is offered.
package usb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of claims.
const (
	MaxClaims = 256
	maxFile   = 256 << 10 // bytes of the file
)

var (
	locationForm = regexp.MustCompile(`^[1-9][0-9]{0,2}-[1-9][0-9]{0,2}(\.[1-9][0-9]{0,2}){0,6}$`)
	idForm       = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{4}$`)
	emulatedForm = regexp.MustCompile(`^emulated:(tablet|mouse|keyboard|storage)$`)
	nameForm     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$`)
)

// Claim offers devices to VMs.
type Claim struct {
	// Device is the location of one device, as 1-2.3, the vendor and product of all devices of a
	// kind, as 05ac:12a8, or emulated:<kind> for one that the hypervisor emulates.
	Device string `json:"device"`
	// Name is the name in the list; several claims may share one. "": each device is listed under
	// its location.
	Name string `json:"name,omitempty"`
}

// check returns the claim in its canonical form.
func (c Claim) check() (Claim, error) {
	c.Device = strings.ToLower(strings.TrimSpace(c.Device))
	switch {
	case !locationForm.MatchString(c.Device) && !idForm.MatchString(c.Device) && !emulatedForm.MatchString(c.Device):
		return c, farm.Invalid("device",
			"%q is neither a location such as 1-2.3, nor vendor and product such as 05ac:12a8, nor emulated:tablet, "+
				"mouse, keyboard or storage", c.Device)
	case c.Name != "" && (!nameForm.MatchString(c.Name) || locationForm.MatchString(c.Name)):
		return c, farm.Invalid("name",
			"%q must have 1 to 64 letters, digits, blanks, dots, dashes and underscores, begin with a letter "+
				"or digit, and not look like a location", c.Name)
	}
	return c, nil
}

// covers reports whether the claim includes a device.
func (c Claim) covers(d Device) bool { return c.Device == d.Location || c.Device == d.ID }

// Claims is the file of claims. The zero value is unusable; see At.
type Claims struct{ file string }

// At returns the claims that are stored in a file, which need not exist.
func At(file string) Claims { return Claims{file} }

// List returns the claims in the order of their devices.
func (c Claims) List() ([]Claim, error) {
	f, err := os.Open(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read USB claims: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read USB claims: %w", err)
	}
	list, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("read USB claims in %s: %w", c.file, err)
	}
	return list, nil
}

// content is the form of the file.
type content struct {
	Claims []Claim `json:"claims"`
}

// parse reads the content of the file.
func parse(raw []byte) ([]Claim, error) {
	if len(raw) > maxFile {
		return nil, fmt.Errorf("claims file has more than %d bytes", maxFile)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var in content
	if err := dec.Decode(&in); err != nil {
		return nil, err
	}
	if len(in.Claims) > MaxClaims {
		return nil, fmt.Errorf("claims file has %d claims; want at most %d", len(in.Claims), MaxClaims)
	}
	var list []Claim
	for _, c := range in.Claims {
		c, err := c.check()
		if err != nil {
			return nil, err
		}
		list = put(list, c)
	}
	return list, nil
}

// put adds a claim, or replaces one of the same device.
func put(list []Claim, c Claim) []Claim {
	i, found := slices.BinarySearchFunc(list, c, func(a, b Claim) int { return strings.Compare(a.Device, b.Device) })
	if found {
		list[i] = c
		return list
	}
	return slices.Insert(list, i, c)
}

// Add claims a device, or the devices of a kind, under a name. It replaces an earlier claim of the
// same device or kind.
func (c Claims) Add(device, name string) (Claim, error) {
	claim, err := Claim{Device: device, Name: name}.check()
	if err != nil {
		return claim, err
	}
	return claim, c.change(func(list []Claim) ([]Claim, error) {
		if list = put(list, claim); len(list) > MaxClaims {
			return nil, farm.Refused("USB claim limit (%d) reached; release some", MaxClaims)
		}
		return list, nil
	})
}

// Remove removes the claims of a device or kind, or those with a name, and returns them.
func (c Claims) Remove(what string) (gone []Claim, err error) {
	device := strings.ToLower(strings.TrimSpace(what))
	err = c.change(func(list []Claim) ([]Claim, error) {
		var left []Claim
		for _, claim := range list {
			if claim.Device == device || claim.Name != "" && claim.Name == what {
				gone = append(gone, claim)
			} else {
				left = append(left, claim)
			}
		}
		if len(gone) == 0 {
			return nil, farm.Errorf(farm.CodeNotFound, "USB claim %q not found; see: buildnode usb list", what)
		}
		return left, nil
	})
	return gone, err
}

// change replaces the file, one writer at a time.
func (c Claims) change(do func([]Claim) ([]Claim, error)) error {
	lock, err := datadir.LockFile(c.file+".lock",
		farm.Errorf(farm.CodeConflict, "Another command is changing the USB claims; try again"))
	if err != nil {
		return err
	}
	defer lock.Release()
	list, err := c.List()
	if err != nil {
		return err
	}
	if list, err = do(list); err != nil {
		return err
	}
	if list == nil {
		list = []Claim{}
	}
	raw, err := json.MarshalIndent(content{list}, "", "  ")
	if err != nil {
		return fmt.Errorf("write USB claims: %w", err)
	}
	return datadir.WriteFile(c.file, append(raw, '\n'))
}
