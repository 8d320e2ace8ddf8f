// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
)

// Kinds of failure, for errors.Is. The error of a call is an [*Error] that wraps a kind.
var (
	// ErrNotFound: there is no table, object, entry, cell or port of that name.
	ErrNotFound = errors.New("not found")
	// ErrExists: there is an entry with that key or an object with that id.
	ErrExists = errors.New("already exists")
	// ErrFull: the table or object has as many entries as its size allows.
	ErrFull = errors.New("full")
	// ErrInvalid: a value out of range, of the wrong kind, or missing.
	ErrInvalid = errors.New("invalid")
	// ErrConst: const entries and const default actions cannot be changed.
	ErrConst = errors.New("constant")
	// ErrInUse: a member or group that is in use cannot be deleted.
	ErrInUse = errors.New("in use")
	// ErrNoProgram: no program is loaded.
	ErrNoProgram = errors.New("no program loaded")
	// ErrClosed: the switch was closed.
	ErrClosed = errors.New("switch closed")
	// ErrNotImplemented: the engine does not support this construct.
	ErrNotImplemented = errors.New("not implemented")
)

// Error is the failure of a call.
type Error struct {
	Object string // object of the call: `table "MyIngress.ipv4_lpm"`
	Detail string // the value, the problem, and what was expected
	Kind   error  // one of the Err values of this package
}

// Error returns "OBJECT: KIND: DETAIL".
func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("%s: %v", e.Object, e.Kind)
	}
	return fmt.Sprintf("%s: %v: %s", e.Object, e.Kind, e.Detail)
}

// Unwrap returns the kind, for errors.Is.
func (e *Error) Unwrap() error { return e.Kind }

func Errorf(kind error, object, format string, args ...any) error {
	return &Error{Object: object, Detail: fmt.Sprintf(format, args...), Kind: kind}
}
