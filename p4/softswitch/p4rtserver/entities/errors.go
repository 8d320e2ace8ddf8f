// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"errors"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/netsketch/netsketch/p4/softswitch"
)

// ErrorSpace is the space of error messages, <target>-<architecture>-<vendor>.
const ErrorSpace = "softswitch-v1model-netsketch"

var engineCodes = []struct {
	err  error
	code codes.Code
}{
	{softswitch.ErrNotFound, codes.NotFound},
	{softswitch.ErrExists, codes.AlreadyExists},
	{softswitch.ErrFull, codes.ResourceExhausted},
	{softswitch.ErrInvalid, codes.InvalidArgument},
	{softswitch.ErrConst, codes.PermissionDenied},
	{softswitch.ErrInUse, codes.FailedPrecondition},
	{softswitch.ErrNoProgram, codes.FailedPrecondition},
	{softswitch.ErrClosed, codes.Unavailable},
	{softswitch.ErrNotImplemented, codes.Unimplemented},
}

// Status returns the status of an error of the switch.
func Status(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, c := range engineCodes {
		if errors.Is(err, c.err) {
			return status.Error(c.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}

// BatchError returns the report of a batch: nil if all items succeeded, else UNKNOWN with one
// p4.v1.Error for each item, in order.
func BatchError(what string, errs []error) error {
	failed := 0
	details := make([]protoadapt.MessageV1, len(errs))
	for i, err := range errs {
		st := status.Convert(Status(err))
		e := &p4v1.Error{CanonicalCode: int32(st.Code())}
		if st.Code() != codes.OK {
			failed++
			e.Message, e.Space, e.Code = st.Message(), ErrorSpace, int32(st.Code())
		}
		details[i] = protoadapt.MessageV1Of(e)
	}
	if failed == 0 {
		return nil
	}
	st, err := status.Newf(codes.Unknown, "%d of %d %s failed", failed, len(errs), what).WithDetails(details...)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return st.Err()
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

func notFound(format string, args ...any) error {
	return status.Errorf(codes.NotFound, format, args...)
}

func unimplemented(format string, args ...any) error {
	return status.Errorf(codes.Unimplemented, format, args...)
}
