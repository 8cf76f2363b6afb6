package jsonlimit

import (
	"errors"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

func TestCheck(t *testing.T) {
	for text, tooMany := range map[string]bool{
		"":                                      false,
		"[" + strings.Repeat("{},", 9) + "{}]":  false, // ten objects in a list
		"[" + strings.Repeat("{},", 10) + "{}]": true,
		"[" + strings.Repeat("[],", 10) + "{}]": true,
		"[" + strings.Repeat("1,", 39) + "1]":   false, // one list with 39 commas
		"[" + strings.Repeat("1,", 40) + "1]":   true,
	} {
		err := CheckCounts([]byte(text), 11, 40)
		if tooMany != errors.Is(err, catalog.ErrTooLarge) || !tooMany && err != nil {
			t.Errorf("%.30s: %v", text, err)
		}
	}
	if err := Check([]byte(strings.Repeat("{", MaxObjects))); err != nil {
		t.Error(err)
	}
	if err := Check([]byte(strings.Repeat("[", MaxObjects+1))); !errors.Is(err, catalog.ErrTooLarge) {
		t.Error(err)
	}
}
