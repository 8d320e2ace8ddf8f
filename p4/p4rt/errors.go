// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"errors"
	"fmt"
	"strings"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Kinds of failure, for errors.Is.
var (
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client closed")
	// ErrNotReady: the session is not in a state that allows the call. Nothing was sent.
	ErrNotReady = errors.New("session not ready")
	// ErrNotPrimary: another controller is the primary, which alone may write.
	ErrNotPrimary = errors.New("not the primary controller")
	// ErrSessionLost: the session ended during the call.
	ErrSessionLost = errors.New("session lost")
	// ErrPipelineRefused: the switch does not accept the pipeline.
	ErrPipelineRefused = errors.New("pipeline refused")
	// ErrRefused: the program or the switch does not accept entries.
	ErrRefused = errors.New("entries refused")
	// ErrUnsupported: the switch or its program lacks a feature that the call needs.
	ErrUnsupported = errors.New("not supported")
)

// NotReadyError says why a call could not be made. errors.Is matches it with ErrNotReady and, in
// Standby or ReadOnly, with ErrNotPrimary.
type NotReadyError struct {
	Target string
	Status Status
	Cause  error // why waiting ended, or nil
}

// Error names the switch, the state and the reason.
func (e *NotReadyError) Error() string {
	s := fmt.Sprintf("p4rt %s: session is %v", e.Target, e.Status.State)
	if e.Status.Reason != nil {
		s += ": " + e.Status.Reason.Error()
	}
	if e.Cause != nil {
		s += " (" + e.Cause.Error() + ")"
	}
	return s
}

// Is makes errors.Is work for ErrNotReady and ErrNotPrimary.
func (e *NotReadyError) Is(target error) bool {
	return target == ErrNotReady || target == ErrNotPrimary && (e.Status.State == Standby || e.Status.State == ReadOnly)
}

// Unwrap returns the reasons.
func (e *NotReadyError) Unwrap() []error {
	var out []error
	for _, err := range []error{e.Cause, e.Status.Reason} {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// UpdateError is an update that the switch refused.
type UpdateError struct {
	Index   int // in the arguments of Write
	Code    codes.Code
	Message string
	update  string // text that describes the update
}

// Error describes the update and contains the reason of the switch.
func (e *UpdateError) Error() string {
	return fmt.Sprintf("%s: %v: %s", e.update, e.Code, e.Message)
}

// WriteError names the updates of a Write that were refused.
type WriteError struct {
	Target   string
	Total    int // updates of the call
	Failed   []*UpdateError
	NotTried int   // updates that were not sent, or whose request failed
	Cause    error // reason for which the request failed, or nil
}

// Error names the first three refused updates.
func (e *WriteError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "p4rt %s: ", e.Target)
	if len(e.Failed) > 0 {
		fmt.Fprintf(&b, "%d of %d updates refused: ", len(e.Failed), e.Total)
		for i, f := range e.Failed {
			if i == 3 {
				fmt.Fprintf(&b, "; and %d more", len(e.Failed)-i)
				break
			}
			if i > 0 {
				b.WriteString("; ")
			}
			b.WriteString(f.Error())
		}
	}
	if e.Cause != nil {
		if len(e.Failed) > 0 {
			b.WriteString("; then ")
		}
		fmt.Fprintf(&b, "write of %d updates failed: %v", e.NotTried, e.Cause)
	}
	return b.String()
}

// Unwrap returns the refused updates and the cause.
func (e *WriteError) Unwrap() []error {
	var out []error
	for _, f := range e.Failed {
		out = append(out, f)
	}
	if e.Cause != nil {
		out = append(out, e.Cause)
	}
	return out
}

// perUpdate returns the p4.v1.Error of each update from an UNKNOWN status. It returns nil if their
// number differs from the number of updates.
func perUpdate(err error, want int) []*p4v1.Error {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.Unknown {
		return nil
	}
	var out []*p4v1.Error
	for _, d := range st.Details() {
		if e, ok := d.(*p4v1.Error); ok {
			out = append(out, e)
		}
	}
	if len(out) != want {
		return nil
	}
	return out
}

// updateErrors pairs the switch's errors with the updates.
func updateErrors(cat *p4values.Catalog, updates []*p4v1.Update, index []int, errs []*p4v1.Error) []*UpdateError {
	var out []*UpdateError
	for i, e := range errs {
		if codes.Code(e.GetCanonicalCode()) == codes.OK {
			continue
		}
		out = append(out, &UpdateError{
			Index: index[i], Code: codes.Code(e.GetCanonicalCode()), Message: e.GetMessage(),
			update: describeUpdate(cat, updates[i]),
		})
	}
	return out
}
