#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# platypus.pl LIBRARY opens the driver as Perl programs do and prints its answers.
use strict;
use warnings;
use FFI::Platypus 1.00;

my $ffi   = FFI::Platypus->new( api => 1, lib => $ARGV[0] );
my $count = -7;
my $init  = $ffi->function( cuInit           => ['unsigned int'] => 'int' )->call(0);
my $rc    = $ffi->function( cuDeviceGetCount => ['int*']         => 'int' )->call( \$count );
print "cuInit=$init countRc=$rc\n";
