package auth_test

import (
	"errors"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/authtest"
	"github.com/buildyard/buildyard/internal/farm"
)

func TestKeyTable(t *testing.T) {
	table := auth.NewKeyTable(nil, nil)
	authtest.Keys(t, func(*testing.T) auth.KeyStore { return table })
}

func TestNonceTable(t *testing.T) {
	authtest.Nonces(t, func(*testing.T) auth.NonceStore { return &auth.MemoryNonces{} }, authtest.Forgets)
}

func TestGrantTable(t *testing.T) {
	authtest.Grants(t, func(*testing.T) auth.GrantStore { return auth.NewGrantTable(auth.Grants{}, nil) },
		authtest.Forgets)
}

// TestNothingIsSeenThatIsNotSaved: a change that cannot be made durable has not happened.
func TestNothingIsSeenThatIsNotSaved(t *testing.T) {
	errDisk, fails := errors.New("disk full"), false
	saved := -1
	table := auth.NewKeyTable(nil, func(all []farm.APIKey) error {
		if fails {
			return errDisk
		}
		saved = len(all)
		return nil
	})
	one := authtest.Key("one")
	if err := table.Create(t.Context(), one); err != nil || saved != 1 {
		t.Fatal(err, saved)
	}
	fails = true
	later := one
	later.Expires = later.Expires.Add(time.Hour)
	for _, err := range []error{
		table.Create(t.Context(), authtest.Key("two")), table.Replace(t.Context(), one, later),
		table.Delete(t.Context(), one),
	} {
		if !errors.Is(err, errDisk) {
			t.Error(err)
		}
	}
	if got, ok := table.Get("one"); !ok || !auth.SameKey(got, one) || len(table.List()) != 1 {
		t.Errorf("%+v", table.List())
	}
}
