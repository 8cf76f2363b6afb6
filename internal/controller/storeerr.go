package controller

import (
	"errors"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

type codeTable []struct {
	is      error
	code    farm.Code
	message string
}

var storeCodes = codeTable{
	{store.ErrBusy, farm.CodeBusy, "The controller has too many writes waiting; try again"},
	{store.ErrUnknownOutcome, farm.CodeUnavailable, "The store did not answer in time; look whether the change happened before trying again"},
	{store.ErrUnavailable, farm.CodeUnavailable, "The store cannot be reached; nothing was changed"},
	{store.ErrClosed, farm.CodeUnavailable, "The controller is stopping; nothing was changed"},
	{store.ErrFenced, farm.CodeUnavailable, "This replica lost its lease; nothing was changed"},
	{store.ErrConflict, farm.CodeConflict, "Somebody else changed the same record; try again"},
}

func (t codeTable) apply(err error) error {
	if err == nil {
		return nil
	}
	if farm.CodeOf(err) != farm.CodeInternal {
		return err
	}
	for _, row := range t {
		if errors.Is(err, row.is) {
			return &farm.Error{Code: row.code, Message: row.message, Err: err}
		}
	}
	return err
}
