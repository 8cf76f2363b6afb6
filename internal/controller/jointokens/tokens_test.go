package jointokens_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/jointokens"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// clock is the time of a database.
type clock struct{ now time.Time }

func open(t *testing.T, db record.DB, o jointokens.Options) *jointokens.Tokens {
	t.Helper()
	tokens, err := jointokens.New(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// openAt opens a database with a clock that the test moves.
func openAt(t *testing.T) (record.DB, *clock) {
	t.Helper()
	c := &clock{time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
	db := recordtest.Open(t)
	db.Now = func() time.Time { return c.now }
	return db, c
}

func create(t *testing.T, tokens *jointokens.Tokens, req jointokens.Request) api.JoinToken {
	t.Helper()
	made, err := tokens.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// wantAdmitted checks whether a token is valid.
func wantAdmitted(t *testing.T, tokens *jointokens.Tokens, secret string, want bool) []store.Change {
	t.Helper()
	changes, err := tokens.Admit(secret)
	if (err == nil) != want || err != nil && farm.CodeOf(err) != farm.CodeUnauthenticated {
		t.Errorf("valid: %v (%v), want %v", err == nil, err, want)
	}
	return changes
}

// TestFirstStart: the first replica creates the permanent token, which survives restarts; a second replica has a
// digest only, and admits it.
func TestFirstStart(t *testing.T) {
	db, _ := openAt(t)
	stored := ""
	keep := func(token string) error { stored = token; return nil }
	first := open(t, db, jointokens.Options{StorePermanent: keep})
	token := first.Permanent()
	if len(token) != 64 || stored != token {
		t.Fatalf("token %q, stored %q", token, stored)
	}
	again := open(t, db, jointokens.Options{PermanentToken: stored, StorePermanent: keep})
	if again.Permanent() != token || stored != token {
		t.Errorf("after a restart %q, stored %q", again.Permanent(), stored)
	}
	stale := "stale"
	other := open(t, db, jointokens.Options{PermanentToken: stale, StorePermanent: func(token string) error {
		stale = token
		return nil
	}})
	if other.Permanent() != "" || stale != "" {
		t.Errorf("another replica has %q, stored %q", other.Permanent(), stale)
	}
	for _, replica := range []*jointokens.Tokens{first, again, other} {
		wantAdmitted(t, replica, token, true)
		wantAdmitted(t, replica, "", false)
		wantAdmitted(t, replica, token+"0", false)
	}
}

// TestStoreHasDigestsOnly looks for the secrets in every record of the tokens.
func TestStoreHasDigestsOnly(t *testing.T) {
	db, _ := openAt(t)
	tokens := open(t, db, jointokens.Options{})
	secrets := []string{tokens.Permanent(), create(t, tokens, jointokens.Request{Once: true}).Token}
	for id, one := range db.Tables.JoinTokens.All() {
		for _, secret := range secrets {
			if strings.Contains(id+one.Digest+one.Description, secret) {
				t.Errorf("record %s has a secret", id)
			}
		}
		if raw, err := hex.DecodeString(one.Digest); err != nil || len(raw) != sha256.Size {
			t.Errorf("digest %q", one.Digest)
		}
	}
	for _, one := range tokens.List() {
		if one.Token != "" {
			t.Errorf("the list has a secret: %+v", one)
		}
	}
}

func TestExpiry(t *testing.T) {
	db, c := openAt(t)
	tokens := open(t, db, jointokens.Options{})
	made := create(t, tokens, jointokens.Request{Lifetime: time.Hour, Description: "d", By: "ci"})
	if !made.Expires.Equal(c.now.Add(time.Hour)) || made.Once || made.Permanent || made.CreatedBy != "ci" ||
		made.Description != "d" {
		t.Errorf("%+v", made)
	}
	c.now = c.now.Add(time.Hour - time.Second)
	wantAdmitted(t, tokens, made.Token, true)
	c.now = c.now.Add(time.Second)
	_, err := tokens.Admit(made.Token)
	if err == nil || !strings.Contains(err.Error(), "expired at 2027-01-01T01:00:00Z") {
		t.Errorf("expired: %v", err)
	}

	for _, after := range []struct {
		passed time.Duration
		listed int
	}{{time.Hour, 2}, {24 * time.Hour, 1}} {
		c.now = c.now.Add(after.passed)
		if err := tokens.Prune(t.Context(), recordtest.Term(db), c.now); err != nil {
			t.Fatal(err)
		}
		if got := len(tokens.List()); got != after.listed {
			t.Errorf("%s later %d tokens, want %d", after.passed, got, after.listed)
		}
	}
}

// TestOnce: of two transactions that use a token which works once, one succeeds.
func TestOnce(t *testing.T) {
	db, _ := openAt(t)
	tokens := open(t, db, jointokens.Options{})
	made := create(t, tokens, jointokens.Request{Once: true})
	first, second := wantAdmitted(t, tokens, made.Token, true), wantAdmitted(t, tokens, made.Token, true)
	recordtest.Commit(t, db, first...)
	if err := db.Store.Commit(t.Context(), second...); !errors.Is(err, store.ErrConflict) {
		t.Errorf("used twice: %v", err)
	}
	wantAdmitted(t, tokens, made.Token, false)
}

// TestOnceAfterRestore: a token that works once may have been used after the backup that it came out of.
func TestOnceAfterRestore(t *testing.T) {
	db, _ := openAt(t)
	tokens := open(t, db, jointokens.Options{})
	once, many := create(t, tokens, jointokens.Request{Once: true}), create(t, tokens, jointokens.Request{})
	for id, one := range db.Tables.JoinTokens.All() {
		older := *one
		older.Epoch = "that of the backup"
		recordtest.Commit(t, db, store.Put(db.Tables.JoinTokens, id, &older, store.Any))
	}
	wantAdmitted(t, tokens, once.Token, false)
	wantAdmitted(t, tokens, many.Token, true)
	wantAdmitted(t, tokens, tokens.Permanent(), true)
}

// TestReplace: the former permanent token becomes invalid on all replicas; others stay valid.
func TestReplace(t *testing.T) {
	db, _ := openAt(t)
	stored := ""
	tokens := open(t, db, jointokens.Options{StorePermanent: func(token string) error { stored = token; return nil }})
	db.Store.Subscribe(tokens.Observe)
	former, other := tokens.Permanent(), create(t, tokens, jointokens.Request{})
	made := create(t, tokens, jointokens.Request{Permanent: true})
	if err := db.UpToDate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !made.Permanent || tokens.Permanent() != made.Token || stored != made.Token {
		t.Errorf("%+v, permanent %q, stored %q", made, tokens.Permanent(), stored)
	}
	wantAdmitted(t, tokens, former, false)
	wantAdmitted(t, tokens, made.Token, true)
	wantAdmitted(t, tokens, other.Token, true)

	for _, bad := range []jointokens.Request{{Permanent: true, Once: true}, {Permanent: true, Lifetime: time.Hour}} {
		if _, err := tokens.Create(t.Context(), bad); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestRevoke: a revoked permanent token stays revoked after a restart, and is not stored any longer.
func TestRevoke(t *testing.T) {
	db, _ := openAt(t)
	stored := make(chan string, 9)
	tokens := open(t, db, jointokens.Options{StorePermanent: func(token string) error { stored <- token; return nil }})
	db.Store.Subscribe(tokens.Observe)
	token := tokens.Permanent()
	if got := <-stored; got != token {
		t.Errorf("stored %q, want %q", got, token)
	}
	if err := tokens.Revoke(t.Context(), tokens.List()[0].ID); err != nil {
		t.Fatal(err)
	}
	if got := <-stored; got != "" {
		t.Errorf("stored %q after it was revoked", got)
	}
	for _, replica := range []*jointokens.Tokens{tokens, open(t, db, jointokens.Options{PermanentToken: token})} {
		wantAdmitted(t, replica, token, false)
		if replica.Permanent() != "" || len(replica.List()) != 0 {
			t.Errorf("permanent %q", replica.Permanent())
		}
	}
	if err := tokens.Revoke(t.Context(), "none"); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("a token that does not exist: %v", err)
	}
}

// TestOlderRelease: the token that an older release has stored stays valid, and its secret leaves the store; one that
// such a release creates later is valid, too.
func TestOlderRelease(t *testing.T) {
	db, _ := openAt(t)
	put := func(token string) {
		recordtest.Commit(t, db, store.Put(db.Tables.Settings, "join-token", &record.Setting{Value: token}, store.Any))
	}
	put("older")
	tokens := open(t, db, jointokens.Options{})
	if tokens.Permanent() != "older" || len(tokens.List()) != 1 {
		t.Errorf("permanent %q of %v", tokens.Permanent(), tokens.List())
	}
	if s, _, ok := db.Tables.Settings.Get("join-token"); ok {
		t.Errorf("the store has %+v", s)
	}
	wantAdmitted(t, tokens, "older", true)

	put("later")
	wantAdmitted(t, tokens, "later", true)
	if again := open(t, db, jointokens.Options{PermanentToken: "later"}); again.Permanent() != "later" {
		t.Errorf("permanent %q", again.Permanent())
	}
	wantAdmitted(t, tokens, "later", true)
	made := create(t, tokens, jointokens.Request{Permanent: true})
	wantAdmitted(t, tokens, "older", false)
	wantAdmitted(t, tokens, "later", false)
	wantAdmitted(t, tokens, made.Token, true)
}

func TestLimit(t *testing.T) {
	db, _ := openAt(t)
	tokens := open(t, db, jointokens.Options{})
	for len(tokens.List()) < jointokens.MaxTokens {
		create(t, tokens, jointokens.Request{})
	}
	_, err := tokens.Create(t.Context(), jointokens.Request{})
	if farm.CodeOf(err) != farm.CodeRefused || !strings.Contains(err.Error(), "revoke one first") {
		t.Errorf("one too many: %v", err)
	}
	create(t, tokens, jointokens.Request{Permanent: true}) // replaces one
}

// TestNoStore: a token is not returned if it was not stored.
func TestNoStore(t *testing.T) {
	db, _ := openAt(t)
	tokens := open(t, db, jointokens.Options{})
	if err := db.Store.Close(); err != nil {
		t.Fatal(err)
	}
	if made, err := tokens.Create(t.Context(), jointokens.Request{}); err == nil || made.Token != "" {
		t.Errorf("%+v, %v", made, err)
	}
}
