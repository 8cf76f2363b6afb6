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

// canonical returns the claim in its canonical form.
func (c Claim) canonical() (Claim, error) {
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

// ClaimsFile is the file of claims. The zero value is unusable; see At.
type ClaimsFile struct{ path string }

// At returns the claims that are stored in a file, which need not exist.
func At(file string) ClaimsFile { return ClaimsFile{file} }

// List returns the claims in the order of their devices.
func (c ClaimsFile) List() ([]Claim, error) {
	f, err := os.Open(c.path)
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
	list, err := parseClaims(raw)
	if err != nil {
		return nil, fmt.Errorf("read USB claims in %s: %w", c.path, err)
	}
	return list, nil
}

// claimsDocument is the form of the file.
type claimsDocument struct {
	Claims []Claim `json:"claims"`
}

// parseClaims reads the content of the file.
func parseClaims(raw []byte) ([]Claim, error) {
	if len(raw) > maxFile {
		return nil, fmt.Errorf("claims file has more than %d bytes", maxFile)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var in claimsDocument
	if err := dec.Decode(&in); err != nil {
		return nil, err
	}
	if len(in.Claims) > MaxClaims {
		return nil, fmt.Errorf("claims file has %d claims; want at most %d", len(in.Claims), MaxClaims)
	}
	var list []Claim
	for _, c := range in.Claims {
		c, err := c.canonical()
		if err != nil {
			return nil, err
		}
		list = putClaim(list, c)
	}
	return list, nil
}

// putClaim adds a claim, or replaces one of the same device.
func putClaim(list []Claim, c Claim) []Claim {
	i, found := slices.BinarySearchFunc(list, c, func(a, b Claim) int { return strings.Compare(a.Device, b.Device) })
	if found {
		list[i] = c
		return list
	}
	return slices.Insert(list, i, c)
}

// Add claims a device, or the devices of a kind, under a name. It replaces an earlier claim of the
// same device or kind.
func (c ClaimsFile) Add(device, name string) (Claim, error) {
	claim, err := Claim{Device: device, Name: name}.canonical()
	if err != nil {
		return claim, err
	}
	return claim, c.changeClaims(func(list []Claim) ([]Claim, error) {
		if list = putClaim(list, claim); len(list) > MaxClaims {
			return nil, farm.Refused("USB claim limit (%d) reached; release some", MaxClaims)
		}
		return list, nil
	})
}

// Remove removes the claims of a device or kind, or those with a name, and returns them.
func (c ClaimsFile) Remove(what string) (gone []Claim, err error) {
	device := strings.ToLower(strings.TrimSpace(what))
	err = c.changeClaims(func(list []Claim) ([]Claim, error) {
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

// changeClaims replaces the file, one writer at a time.
func (c ClaimsFile) changeClaims(do func([]Claim) ([]Claim, error)) error {
	lock, err := datadir.LockFile(c.path+".lock",
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
	raw, err := json.MarshalIndent(claimsDocument{list}, "", "  ")
	if err != nil {
		return fmt.Errorf("write USB claims: %w", err)
	}
	return datadir.WriteFile(c.path, append(raw, '\n'))
}
