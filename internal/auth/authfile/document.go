package authfile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// documentForm is the newest form of a document that is understood.
const documentForm = 1

// document is a file that holds one value.
type document struct {
	Form int             `json:"form"`
	Sum  string          `json:"sha256"` // of the bytes of Data
	Data json.RawMessage `json:"data"`
}

// The documents, and the most that each may have, in bytes.
const (
	keysFile    = "keys.json"
	ringFile    = "signing.json"
	grantsFile  = "grants.json"
	maxDocument = 64 << 20
)

// save replaces a document.
func (f *Dir) save(name string, data []byte) error {
	sum := sha256.Sum256(data)
	raw, err := json.Marshal(document{Form: documentForm, Sum: hex.EncodeToString(sum[:]), Data: data})
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.replace(name, append(raw, '\n'))
}

// load returns the content of a document; nil when there is none. Its errors contain nothing of
// that.
func (f *Dir) load(name string) ([]byte, error) {
	raw, err := f.read(name, maxDocument)
	if raw == nil || err != nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil || d.Form < 1 {
		return nil, damaged(name, errors.New("file is incomplete"))
	}
	if d.Form > documentForm {
		return nil, fmt.Errorf("%s has format %d, this program supports up to %d; update this program", name, d.Form,
			documentForm)
	}
	if sum := sha256.Sum256(d.Data); hex.EncodeToString(sum[:]) != d.Sum {
		return nil, damaged(name, errors.New("checksum mismatch"))
	}
	return d.Data, nil
}

func damaged(name string, why error) error {
	return fmt.Errorf("%s is damaged (%w); restore it from a backup, or move it away to start without its content",
		name, why)
}

// Keys opens the API keys. Damage is an error: no key may be lost or change unnoticed.
func (f *Dir) Keys() (*auth.KeyTable, error) {
	raw, err := f.load(keysFile)
	if err != nil {
		return nil, err
	}
	var keys []farm.APIKey
	if raw != nil {
		if err := json.Unmarshal(raw, &keys); err != nil {
			return nil, damaged(keysFile, errors.New("file has no API keys"))
		}
	}
	seen := map[string]bool{}
	for _, k := range keys {
		if k.ID == "" || k.Generation == "" || seen[k.ID] {
			return nil, damaged(keysFile, fmt.Errorf("the API key %q is incomplete or occurs twice", k.ID))
		}
		seen[k.ID] = true
	}
	return auth.NewKeyTable(keys, func(all []farm.APIKey) error {
		raw, err := json.Marshal(all)
		if err != nil {
			return fmt.Errorf("write %s: %w", keysFile, err)
		}
		return f.save(keysFile, raw)
	}), nil
}

// Ring opens the signing keys, and makes them when there are none.
func (f *Dir) Ring() (auth.KeyRing, error) {
	raw, err := f.load(ringFile)
	if err != nil {
		return auth.KeyRing{}, err
	}
	if raw == nil {
		r := auth.NewKeyRing(time.Now())
		return r, f.SaveRing(r)
	}
	r, err := auth.ParseKeyRing(raw)
	if err != nil {
		return auth.KeyRing{}, damaged(ringFile, err)
	}
	return r, nil
}

// SaveRing replaces the signing keys.
func (f *Dir) SaveRing(r auth.KeyRing) error {
	raw, err := r.Encode()
	if err != nil {
		return err
	}
	return f.save(ringFile, raw)
}

// Grants opens the grants of a service.
func (f *Dir) Grants(s farm.Service) (*auth.GrantTable, error) {
	raw, err := f.load(grantsFile)
	if err != nil {
		return nil, err
	}
	var g auth.Grants
	if raw != nil {
		if err := json.Unmarshal(raw, &g); err != nil {
			return nil, damaged(grantsFile, errors.New("file has no permissions"))
		}
	}
	if err := g.Check(s); err != nil {
		return nil, damaged(grantsFile, err)
	}
	return auth.NewGrantTable(g, func(g auth.Grants) error {
		raw, err := json.Marshal(g)
		if err != nil {
			return fmt.Errorf("write %s: %w", grantsFile, err)
		}
		return f.save(grantsFile, raw)
	}), nil
}
