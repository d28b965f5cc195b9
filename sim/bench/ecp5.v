// The block RAM of an ECP5 (Lattice FPGA-TN-02204) as Yosys' memory_libmap uses it: no output registers, no cascade, both clocks
// rising. Yosys itself has no model of it. 512 rows of 36 bits; a port of width 18, 9, 4, 2, 1 sees a half row, a byte of nine,
// and so on of eight of them. What the other port writes in the same cycle reads as its opposite: the datasheet promises
// nothing there, so that a design which relies on it fails.
module DP16KD(
  input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0,
  input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0,
  input CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0,
  output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0,
  input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0,
  input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0,
  input CEB, OCEB, CLKB, WEB, RSTB, CSB2, CSB1, CSB0,
  output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0
);
  parameter DATA_WIDTH_A = 18;
  parameter DATA_WIDTH_B = 18;
  parameter REGMODE_A = "NOREG";
  parameter REGMODE_B = "NOREG";
  parameter RESETMODE = "SYNC";
  parameter ASYNC_RESET_RELEASE = "SYNC";
  parameter CSDECODE_A = "0b000";
  parameter CSDECODE_B = "0b000";
  parameter WRITEMODE_A = "NORMAL";
  parameter WRITEMODE_B = "NORMAL";
  parameter CLKAMUX = "CLKA";
  parameter CLKBMUX = "CLKB";
  parameter GSR = "AUTO";
  parameter INITVAL_00 = 320'b0, INITVAL_01 = 320'b0, INITVAL_02 = 320'b0, INITVAL_03 = 320'b0;
  parameter INITVAL_04 = 320'b0, INITVAL_05 = 320'b0, INITVAL_06 = 320'b0, INITVAL_07 = 320'b0;
  parameter INITVAL_08 = 320'b0, INITVAL_09 = 320'b0, INITVAL_0A = 320'b0, INITVAL_0B = 320'b0;
  parameter INITVAL_0C = 320'b0, INITVAL_0D = 320'b0, INITVAL_0E = 320'b0, INITVAL_0F = 320'b0;
  parameter INITVAL_10 = 320'b0, INITVAL_11 = 320'b0, INITVAL_12 = 320'b0, INITVAL_13 = 320'b0;
  parameter INITVAL_14 = 320'b0, INITVAL_15 = 320'b0, INITVAL_16 = 320'b0, INITVAL_17 = 320'b0;
  parameter INITVAL_18 = 320'b0, INITVAL_19 = 320'b0, INITVAL_1A = 320'b0, INITVAL_1B = 320'b0;
  parameter INITVAL_1C = 320'b0, INITVAL_1D = 320'b0, INITVAL_1E = 320'b0, INITVAL_1F = 320'b0;
  parameter INITVAL_20 = 320'b0, INITVAL_21 = 320'b0, INITVAL_22 = 320'b0, INITVAL_23 = 320'b0;
  parameter INITVAL_24 = 320'b0, INITVAL_25 = 320'b0, INITVAL_26 = 320'b0, INITVAL_27 = 320'b0;
  parameter INITVAL_28 = 320'b0, INITVAL_29 = 320'b0, INITVAL_2A = 320'b0, INITVAL_2B = 320'b0;
  parameter INITVAL_2C = 320'b0, INITVAL_2D = 320'b0, INITVAL_2E = 320'b0, INITVAL_2F = 320'b0;
  parameter INITVAL_30 = 320'b0, INITVAL_31 = 320'b0, INITVAL_32 = 320'b0, INITVAL_33 = 320'b0;
  parameter INITVAL_34 = 320'b0, INITVAL_35 = 320'b0, INITVAL_36 = 320'b0, INITVAL_37 = 320'b0;
  parameter INITVAL_38 = 320'b0, INITVAL_39 = 320'b0, INITVAL_3A = 320'b0, INITVAL_3B = 320'b0;
  parameter INITVAL_3C = 320'b0, INITVAL_3D = 320'b0, INITVAL_3E = 320'b0, INITVAL_3F = 320'b0;

  generate
    if (REGMODE_A != "NOREG" || REGMODE_B != "NOREG" || CLKAMUX != "CLKA" || CLKBMUX != "CLKB")
      dp16kd_in_a_mode_that_is_not_modelled refused();
  endgenerate

  wire [17:0] lowa = {DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0};
  wire [17:0] lowb = {DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0};
  wire [35:0] dia = {DATA_WIDTH_A == 36 ? lowb : 18'b0, lowa}, dib = {18'b0, lowb};
  wire [13:0] ada = {ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0};
  wire [13:0] adb = {ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0};

  // Where a port's word begins in its row, and which bits it writes: bytes of nine have their enables in the lowest address bits.
  function [5:0] begins(input integer width, input [13:0] address);
    begins = (width < 36 && address[4] ? 18 : 0) + (width < 18 && address[3] ? 9 : 0) +
             (width == 4 ? address[2] * 4 : width == 2 ? address[2:1] * 2 : width == 1 ? address[2:0] : 0);
  endfunction
  function [35:0] written(input integer width, input [13:0] address);
    written = width == 36 ? {{9{address[3]}}, {9{address[2]}}, {9{address[1]}}, {9{address[0]}}}
            : (width == 18 ? {18'b0, {9{address[1]}}, {9{address[0]}}} : (36'b1 << width) - 36'b1) << begins(width, address);
  endfunction

  reg [35:0] rows [0:511];
  wire [8:0] rowa = ada[13:5], rowb = adb[13:5];
  wire [5:0] ata = begins(DATA_WIDTH_A, ada), atb = begins(DATA_WIDTH_B, adb);
  wire writesa = CEA & WEA & ~(RSTA && RESETMODE == "SYNC"), writesb = CEB & WEB & ~(RSTB && RESETMODE == "SYNC");
  wire [35:0] maska = writesa ? written(DATA_WIDTH_A, ada) : 36'b0, maskb = writesb ? written(DATA_WIDTH_B, adb) : 36'b0;
  wire [35:0] olda = rows[rowa], oldb = rows[rowb];
  wire [35:0] newa = olda & ~maska | dia << ata & maska, newb = oldb & ~maskb | dib << atb & maskb;
  reg [35:0] doa = 0, dob = 0;

  wire [35:0] seena = ((WRITEMODE_A == "WRITETHROUGH" ? newa : olda) ^ (rowa == rowb ? maskb : 36'b0)) >> ata;
  wire [35:0] seenb = ((WRITEMODE_B == "WRITETHROUGH" ? newb : oldb) ^ (rowa == rowb ? maska : 36'b0)) >> atb;
  wire readsa = CEA && (!WEA || WRITEMODE_A != "NORMAL"), readsb = CEB && (!WEB || WRITEMODE_B != "NORMAL");

  always @(posedge CLKA) if (writesa) rows[rowa] <= newa;
  always @(posedge CLKB) if (writesb) rows[rowb] <= newb;
  generate
    if (RESETMODE == "SYNC") begin
      always @(posedge CLKA) if (RSTA) doa <= 0; else if (readsa) doa <= seena;
      always @(posedge CLKB) if (RSTB) dob <= 0; else if (readsb) dob <= seenb;
    end else begin
      always @(posedge CLKA, posedge RSTA) if (RSTA) doa <= 0; else if (readsa) doa <= seena;
      always @(posedge CLKB, posedge RSTB) if (RSTB) dob <= 0; else if (readsb) dob <= seenb;
    end
  endgenerate

  // A row of 36 bits is read by port B and leaves by the outputs of both.
  assign {DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0}
    = DATA_WIDTH_B == 36 ? dob[17:0] : doa[17:0];
  assign {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0}
    = DATA_WIDTH_B == 36 ? dob[35:18] : dob[17:0];

  integer k;
  initial for (k = 0; k < 16; k = k + 1) begin
    if (!k[0]) rows[0 + k / 2] = {INITVAL_00[20 * k + 20 +: 18], INITVAL_00[20 * k +: 18]};
    if (!k[0]) rows[8 + k / 2] = {INITVAL_01[20 * k + 20 +: 18], INITVAL_01[20 * k +: 18]};
    if (!k[0]) rows[16 + k / 2] = {INITVAL_02[20 * k + 20 +: 18], INITVAL_02[20 * k +: 18]};
    if (!k[0]) rows[24 + k / 2] = {INITVAL_03[20 * k + 20 +: 18], INITVAL_03[20 * k +: 18]};
    if (!k[0]) rows[32 + k / 2] = {INITVAL_04[20 * k + 20 +: 18], INITVAL_04[20 * k +: 18]};
    if (!k[0]) rows[40 + k / 2] = {INITVAL_05[20 * k + 20 +: 18], INITVAL_05[20 * k +: 18]};
    if (!k[0]) rows[48 + k / 2] = {INITVAL_06[20 * k + 20 +: 18], INITVAL_06[20 * k +: 18]};
    if (!k[0]) rows[56 + k / 2] = {INITVAL_07[20 * k + 20 +: 18], INITVAL_07[20 * k +: 18]};
    if (!k[0]) rows[64 + k / 2] = {INITVAL_08[20 * k + 20 +: 18], INITVAL_08[20 * k +: 18]};
    if (!k[0]) rows[72 + k / 2] = {INITVAL_09[20 * k + 20 +: 18], INITVAL_09[20 * k +: 18]};
    if (!k[0]) rows[80 + k / 2] = {INITVAL_0A[20 * k + 20 +: 18], INITVAL_0A[20 * k +: 18]};
    if (!k[0]) rows[88 + k / 2] = {INITVAL_0B[20 * k + 20 +: 18], INITVAL_0B[20 * k +: 18]};
    if (!k[0]) rows[96 + k / 2] = {INITVAL_0C[20 * k + 20 +: 18], INITVAL_0C[20 * k +: 18]};
    if (!k[0]) rows[104 + k / 2] = {INITVAL_0D[20 * k + 20 +: 18], INITVAL_0D[20 * k +: 18]};
    if (!k[0]) rows[112 + k / 2] = {INITVAL_0E[20 * k + 20 +: 18], INITVAL_0E[20 * k +: 18]};
    if (!k[0]) rows[120 + k / 2] = {INITVAL_0F[20 * k + 20 +: 18], INITVAL_0F[20 * k +: 18]};
    if (!k[0]) rows[128 + k / 2] = {INITVAL_10[20 * k + 20 +: 18], INITVAL_10[20 * k +: 18]};
    if (!k[0]) rows[136 + k / 2] = {INITVAL_11[20 * k + 20 +: 18], INITVAL_11[20 * k +: 18]};
    if (!k[0]) rows[144 + k / 2] = {INITVAL_12[20 * k + 20 +: 18], INITVAL_12[20 * k +: 18]};
    if (!k[0]) rows[152 + k / 2] = {INITVAL_13[20 * k + 20 +: 18], INITVAL_13[20 * k +: 18]};
    if (!k[0]) rows[160 + k / 2] = {INITVAL_14[20 * k + 20 +: 18], INITVAL_14[20 * k +: 18]};
    if (!k[0]) rows[168 + k / 2] = {INITVAL_15[20 * k + 20 +: 18], INITVAL_15[20 * k +: 18]};
    if (!k[0]) rows[176 + k / 2] = {INITVAL_16[20 * k + 20 +: 18], INITVAL_16[20 * k +: 18]};
    if (!k[0]) rows[184 + k / 2] = {INITVAL_17[20 * k + 20 +: 18], INITVAL_17[20 * k +: 18]};
    if (!k[0]) rows[192 + k / 2] = {INITVAL_18[20 * k + 20 +: 18], INITVAL_18[20 * k +: 18]};
    if (!k[0]) rows[200 + k / 2] = {INITVAL_19[20 * k + 20 +: 18], INITVAL_19[20 * k +: 18]};
    if (!k[0]) rows[208 + k / 2] = {INITVAL_1A[20 * k + 20 +: 18], INITVAL_1A[20 * k +: 18]};
    if (!k[0]) rows[216 + k / 2] = {INITVAL_1B[20 * k + 20 +: 18], INITVAL_1B[20 * k +: 18]};
    if (!k[0]) rows[224 + k / 2] = {INITVAL_1C[20 * k + 20 +: 18], INITVAL_1C[20 * k +: 18]};
    if (!k[0]) rows[232 + k / 2] = {INITVAL_1D[20 * k + 20 +: 18], INITVAL_1D[20 * k +: 18]};
    if (!k[0]) rows[240 + k / 2] = {INITVAL_1E[20 * k + 20 +: 18], INITVAL_1E[20 * k +: 18]};
    if (!k[0]) rows[248 + k / 2] = {INITVAL_1F[20 * k + 20 +: 18], INITVAL_1F[20 * k +: 18]};
    if (!k[0]) rows[256 + k / 2] = {INITVAL_20[20 * k + 20 +: 18], INITVAL_20[20 * k +: 18]};
    if (!k[0]) rows[264 + k / 2] = {INITVAL_21[20 * k + 20 +: 18], INITVAL_21[20 * k +: 18]};
    if (!k[0]) rows[272 + k / 2] = {INITVAL_22[20 * k + 20 +: 18], INITVAL_22[20 * k +: 18]};
    if (!k[0]) rows[280 + k / 2] = {INITVAL_23[20 * k + 20 +: 18], INITVAL_23[20 * k +: 18]};
    if (!k[0]) rows[288 + k / 2] = {INITVAL_24[20 * k + 20 +: 18], INITVAL_24[20 * k +: 18]};
    if (!k[0]) rows[296 + k / 2] = {INITVAL_25[20 * k + 20 +: 18], INITVAL_25[20 * k +: 18]};
    if (!k[0]) rows[304 + k / 2] = {INITVAL_26[20 * k + 20 +: 18], INITVAL_26[20 * k +: 18]};
    if (!k[0]) rows[312 + k / 2] = {INITVAL_27[20 * k + 20 +: 18], INITVAL_27[20 * k +: 18]};
    if (!k[0]) rows[320 + k / 2] = {INITVAL_28[20 * k + 20 +: 18], INITVAL_28[20 * k +: 18]};
    if (!k[0]) rows[328 + k / 2] = {INITVAL_29[20 * k + 20 +: 18], INITVAL_29[20 * k +: 18]};
    if (!k[0]) rows[336 + k / 2] = {INITVAL_2A[20 * k + 20 +: 18], INITVAL_2A[20 * k +: 18]};
    if (!k[0]) rows[344 + k / 2] = {INITVAL_2B[20 * k + 20 +: 18], INITVAL_2B[20 * k +: 18]};
    if (!k[0]) rows[352 + k / 2] = {INITVAL_2C[20 * k + 20 +: 18], INITVAL_2C[20 * k +: 18]};
    if (!k[0]) rows[360 + k / 2] = {INITVAL_2D[20 * k + 20 +: 18], INITVAL_2D[20 * k +: 18]};
    if (!k[0]) rows[368 + k / 2] = {INITVAL_2E[20 * k + 20 +: 18], INITVAL_2E[20 * k +: 18]};
    if (!k[0]) rows[376 + k / 2] = {INITVAL_2F[20 * k + 20 +: 18], INITVAL_2F[20 * k +: 18]};
    if (!k[0]) rows[384 + k / 2] = {INITVAL_30[20 * k + 20 +: 18], INITVAL_30[20 * k +: 18]};
    if (!k[0]) rows[392 + k / 2] = {INITVAL_31[20 * k + 20 +: 18], INITVAL_31[20 * k +: 18]};
    if (!k[0]) rows[400 + k / 2] = {INITVAL_32[20 * k + 20 +: 18], INITVAL_32[20 * k +: 18]};
    if (!k[0]) rows[408 + k / 2] = {INITVAL_33[20 * k + 20 +: 18], INITVAL_33[20 * k +: 18]};
    if (!k[0]) rows[416 + k / 2] = {INITVAL_34[20 * k + 20 +: 18], INITVAL_34[20 * k +: 18]};
    if (!k[0]) rows[424 + k / 2] = {INITVAL_35[20 * k + 20 +: 18], INITVAL_35[20 * k +: 18]};
    if (!k[0]) rows[432 + k / 2] = {INITVAL_36[20 * k + 20 +: 18], INITVAL_36[20 * k +: 18]};
    if (!k[0]) rows[440 + k / 2] = {INITVAL_37[20 * k + 20 +: 18], INITVAL_37[20 * k +: 18]};
    if (!k[0]) rows[448 + k / 2] = {INITVAL_38[20 * k + 20 +: 18], INITVAL_38[20 * k +: 18]};
    if (!k[0]) rows[456 + k / 2] = {INITVAL_39[20 * k + 20 +: 18], INITVAL_39[20 * k +: 18]};
    if (!k[0]) rows[464 + k / 2] = {INITVAL_3A[20 * k + 20 +: 18], INITVAL_3A[20 * k +: 18]};
    if (!k[0]) rows[472 + k / 2] = {INITVAL_3B[20 * k + 20 +: 18], INITVAL_3B[20 * k +: 18]};
    if (!k[0]) rows[480 + k / 2] = {INITVAL_3C[20 * k + 20 +: 18], INITVAL_3C[20 * k +: 18]};
    if (!k[0]) rows[488 + k / 2] = {INITVAL_3D[20 * k + 20 +: 18], INITVAL_3D[20 * k +: 18]};
    if (!k[0]) rows[496 + k / 2] = {INITVAL_3E[20 * k + 20 +: 18], INITVAL_3E[20 * k +: 18]};
    if (!k[0]) rows[504 + k / 2] = {INITVAL_3F[20 * k + 20 +: 18], INITVAL_3F[20 * k +: 18]};
  end
endmodule

// As Yosys' model, which is a tree of selections: a compiler is done with this one ten times as fast.
module LUT4(input A, B, C, D, output Z);
  parameter [15:0] INIT = 0;
  wire [3:0] at = {D, C, B, A};
  wire [15:0] shifted = INIT >> at;
  assign Z = shifted[0];
endmodule
