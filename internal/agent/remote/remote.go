// Package remote stores the registries that a node's owner has named, and which of them is the
// current one.
//
// It connects to no registry; it only has their addresses and certificates. The agent itself does
// not use it: its orders name the registry.
//
// Invariant: the current registry is one of those listed, and there is one as long as the list is
// not empty.
package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/farm"
)

// Registry is one named registry.
type Registry struct {
	Name string           `json:"name"`
	URL  string           `json:"url"`
	TLS  datadir.TLSFiles `json:"tls,omitzero"`

	// Credentials: the names of files, which contain the secrets.
	KeyID     string `json:"key_id,omitempty"` // of an API key
	KeyFile   string `json:"key_file,omitempty"`
	TokenFile string `json:"token_file,omitempty"` // of the root user
}

// List is the file of named registries, in the order in which they were added.
type List struct {
	CurrentName string     `json:"current"`
	Registries  []Registry `json:"registries"`

	path string
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Load reads a file; a missing one is an empty list.
func Load(file string) (*List, error) {
	l := &List{path: file}
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, l)
	}
	if err != nil {
		return nil, fmt.Errorf("read list of registries %s: %w", file, err)
	}
	return l, nil
}

func (l *List) save() error {
	raw, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return datadir.WriteFile(l.path, append(raw, '\n'))
}

func (l *List) indexOf(name string) int {
	return slices.IndexFunc(l.Registries, func(r Registry) bool { return r.Name == name })
}

// CheckURL refuses a text that is not the address of a registry.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return farm.Invalid("registry", "invalid URL %q: want a URL such as http://registry.example:8089", address)
	}
	return nil
}

// Add adds a registry with a name and makes it the current one. An existing name gets the new address.
func (l *List) Add(r Registry) error {
	if !namePattern.MatchString(r.Name) {
		return farm.Invalid("name", "%q: only letters, digits, '.', '_' and '-' are allowed", r.Name)
	}
	if err := CheckURL(r.URL); err != nil {
		return err
	}
	if i := l.indexOf(r.Name); i >= 0 {
		l.Registries[i] = r
	} else {
		l.Registries = append(l.Registries, r)
	}
	l.CurrentName = r.Name
	return l.save()
}

// SetCurrent makes a registry the current one.
func (l *List) SetCurrent(name string) error {
	if l.indexOf(name) < 0 {
		return l.unknownRegistryError(name)
	}
	l.CurrentName = name
	return l.save()
}

// Remove removes a registry. If it was the current one, the one added last becomes that.
func (l *List) Remove(name string) error {
	i := l.indexOf(name)
	if i < 0 {
		return l.unknownRegistryError(name)
	}
	l.Registries = slices.Delete(l.Registries, i, i+1)
	if l.CurrentName == name {
		l.CurrentName = ""
		if n := len(l.Registries); n > 0 {
			l.CurrentName = l.Registries[n-1].Name
		}
	}
	return l.save()
}

// Resolve returns the registry with a name or, if it has a scheme, with an address; "" is the
// current one.
func (l *List) Resolve(name string) (Registry, error) {
	if strings.Contains(name, "://") {
		return Registry{URL: name}, CheckURL(name)
	}
	if name == "" {
		if name = l.CurrentName; name == "" {
			return Registry{}, farm.Refused("No current registry; run: buildnode registry add <name> <URL>")
		}
	}
	if i := l.indexOf(name); i >= 0 {
		return l.Registries[i], nil
	}
	return Registry{}, l.unknownRegistryError(name)
}

func (l *List) unknownRegistryError(name string) error {
	return farm.Errorf(farm.CodeNotFound, "Registry %q not found; see: buildnode registry list-repos", name)
}
